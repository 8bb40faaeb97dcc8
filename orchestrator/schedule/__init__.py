"""Scheduled audits: repeated on a cadence, or when the model or its data change."""
