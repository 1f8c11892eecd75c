"""The synthetic world: first-person video with exact answers."""
