"""The work on a device: claim a shard, explain it, save it; in Celery or in a local process."""
