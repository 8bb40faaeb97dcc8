"""The keys that kombu uses in Redis, and values of every type to put there."""

#: type -> a command that makes a key of it, with what follows the key
MAKERS: dict[str, tuple[str, ...]] = {
    "string": ("SET", "x"),
    "list": ("RPUSH", "x"),
    "set": ("SADD", "x"),
    "hash": ("HSET", "x", "y"),
    "zset": ("ZADD", "1", "x"),
}


def names_of_keys(first: str, queue: str) -> list[str]:
    """Behind the prefix, of a fleet (its first word of names) and one of its queues."""
    exchanges = (queue, f"{first}.pidbox", f"reply.{first}.pidbox", f"{first}.celeryev")
    return [
        *("unacked", "unacked_index", "unacked_mutex", "_kombu.binding_deadlines"),
        *(f"_kombu.binding.{name}" for name in exchanges),
        *(f"_kombu.binding_permanent.{name}" for name in exchanges),
        *(queue, f"{queue}\x06\x163", f"{queue}\x06\x166", f"{queue}\x06\x169"),
    ]
