"""Relevance propagation: operators and rules, for any model in torch."""
