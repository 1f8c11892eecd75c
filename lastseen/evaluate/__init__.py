"""How good the answers are: the official VQ2D metrics and the challenge file."""
