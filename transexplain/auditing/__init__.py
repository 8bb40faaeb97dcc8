"""The work on one shard of an audit: explain, find mentions, run the controls, keep texts
private.
"""
