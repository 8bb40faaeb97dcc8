"""Explanations measured in batches: the loop under both `evaluate` and an audit's sample."""
