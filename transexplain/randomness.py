"""Random numbers by key: the same whatever else is drawn, and in which order.

No number depends on what was drawn before it, so it is the same in every shard, batch and process.
The hash functions, separators and byte orders below are those with which stored runs were made.
"""

import hashlib
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ALL = 2**64


def keyed_number(
    *key: object,
    bits: int = 64,
    algorithm: Literal["blake2b", "sha256"] = "blake2b",
    separator: str = "\0",
    byte_order: Literal["big", "little"] = "big",
) -> int:
    """The number of `bits` bits, 0 to 2**bits - 1, that belongs to a key.

    Args:
        key: what the number belongs to; the parts' texts are joined.
        bits: a multiple of 8; of sha256 at most 256, the digest's first ones.
        algorithm: the hash function.
        separator: between the parts of the key.
        byte_order: of the digest's bytes.
    """
    # an identifier may hold half of a surrogate pair, which strict UTF-8 does not encode
    text = separator.join(map(str, key)).encode("utf-8", "surrogatepass")
    size = bits // 8
    if algorithm == "sha256":
        digest = hashlib.sha256(text).digest()[:size]
    else:
        digest = hashlib.blake2b(text, digest_size=size).digest()
    return int.from_bytes(digest, byte_order)


def generator(*key: object) -> np.random.Generator:
    """A random generator that is the same wherever this key is used."""
    return np.random.Generator(np.random.Philox(key=keyed_number(*key, bits=128)))


def row_number(row: int, seed: int) -> int:
    """The number of a row of a dataset, 0 to 2**64 - 1: SplitMix64 (Steele et al. 2014, Fig. 16).

    It follows from integer arithmetic alone, so that no version of a library changes a sample, and
    numpy computes it for millions of rows at once (see `row_places`).
    """
    mixed = (seed * _FIRST + (row + 1) * _STEP) % _ALL
    mixed = ((mixed ^ (mixed >> 30)) * _FIRST) % _ALL
    mixed = ((mixed ^ (mixed >> 27)) * _SECOND) % _ALL
    return mixed ^ (mixed >> 31)


@lru_cache(maxsize=4)  # every shard of a run needs it, and the order is of the whole dataset
def row_places(rows: int, seed: int) -> NDArray[np.intp]:
    """(`rows`,) the place of every row in a random order; places below n are a sample of n.

    Samples of one seed are nested. The array is shared and cannot be written to.
    """
    order = np.empty(rows, dtype=np.intp)
    first, second = np.uint64(_FIRST), np.uint64(_SECOND)
    with np.errstate(over="ignore"):  # modulo 2**64 is meant
        start = np.uint64(seed * _FIRST % _ALL)
        mixed = start + (np.arange(rows, dtype=np.uint64) + np.uint64(1)) * np.uint64(_STEP)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * first
        mixed = (mixed ^ (mixed >> np.uint64(27))) * second
    order[np.argsort(np.asarray(mixed ^ (mixed >> np.uint64(31))), kind="stable")] = np.arange(rows)
    order.flags.writeable = False
    return order
