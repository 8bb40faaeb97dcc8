"""Measures of explanations, one per file."""
