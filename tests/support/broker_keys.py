"""Names of queues for tests, the keys of kombu in Redis, and values of every type for them."""

import os
import uuid
from contextlib import suppress

#: how the names of this session's queues begin; processes that it starts have the same
SESSION = os.environ.setdefault("TE_TEST_SESSION", f"te-test-{uuid.uuid4().hex[:8]}")
REDIS = os.environ.get("TRANSEXPLAIN_TEST_REDIS", "redis://127.0.0.1:6379/0")


def queue_name_of_test() -> str:
    """A name that no other test has."""
    return f"{SESSION}-{uuid.uuid4().hex[:8]}"


def forget(url: str, prefix: str) -> None:
    """Delete the keys of a queue, or of the whole session, from Redis."""
    import redis

    with suppress(redis.ConnectionError), redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"{prefix}*", count=1000):
            client.delete(key)


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
