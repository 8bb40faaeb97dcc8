"""Graphs and molecules: files, encoders and a small graph transformer."""
