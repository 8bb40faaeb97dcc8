"""Audits that are made again: on a cadence, or when the model or its data change."""
