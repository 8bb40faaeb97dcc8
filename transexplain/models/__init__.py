"""Load a model, encode items, say what a position is: token with offsets, or patch of a grid."""
