"""Where shards are worked on: in this process or its children (`local`), or on a queue."""
