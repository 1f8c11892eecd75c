"""Training: clips with known answers in, a model folder out."""
