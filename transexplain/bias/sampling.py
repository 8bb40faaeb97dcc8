"""Random numbers that belong to a name: the same whatever else is drawn, and in which order."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def generator(*names: object) -> np.random.Generator:
    """A random generator that is the same wherever these names meet."""
    text = "\0".join(map(str, names)).encode()
    key = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
    return np.random.Generator(np.random.Philox(key=key))


def poisson_weights(names: Sequence[str], resamples: int, seed: int) -> NDArray[np.uint8]:
    """Weights (len(names), resamples) of a Poisson bootstrap, drawn for each name by itself.

    A name has the same weights in every table that it is in, so tables that are cut up and merged
    in any order resample alike (Hanley and MacGibbon 2006 for the bootstrap; Chamandy et al. 2012
    for weights by key).
    """
    if not names:
        return np.empty((0, resamples), dtype=np.uint8)
    return np.stack([_weights(name, resamples, seed) for name in names])


@lru_cache(maxsize=10_000)  # of every class the same entities are resampled
def _weights(name: str, resamples: int, seed: int) -> NDArray[np.uint8]:
    return generator("bootstrap", seed, name).poisson(1.0, resamples).astype(np.uint8)
