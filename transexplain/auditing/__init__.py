"""What one shard of an audit does: explain, find mentions, check a sample, keep texts private."""
