"""Synthetic first-person video with exact annotations, for training and evaluation."""
