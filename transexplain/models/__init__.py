"""Loads models and encodes items; a position is a token with offsets, or a patch of a grid."""
