"""Explainers that learn: a small network that predicts relevance from hidden states."""
