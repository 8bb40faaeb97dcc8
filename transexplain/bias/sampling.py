"""Random numbers that belong to a name: the same whatever else is drawn, and in which order."""

import hashlib
from collections.abc import Sequence

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
    weights = np.empty((len(names), resamples), dtype=np.uint8)
    for row, name in zip(weights, names, strict=True):
        row[:] = generator("bootstrap", seed, name).poisson(1.0, resamples)
    return weights
