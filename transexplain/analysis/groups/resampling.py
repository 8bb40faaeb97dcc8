"""Permutation tests, sign-flip tests and bootstrap weights."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transexplain.randomness import generator

PERMUTATIONS = 9_999
_FEWER = 1_999  #: for pools of entities so large that the permutations would take seconds
_LARGE_POOL = 2_000
_SHARING_POOL = 500  #: entities from which on groups take their labellings from the same orders
_CELLS = 250_000  #: entities times permutations that are summed at once: 2 MB, as caches hold
_SHUFFLED = 16_000  #: the same that are shuffled at once
_BLOCK = 500  #: orders that one thread draws
_SHARED = 40_000_000  #: the same of orders that groups share
_KEPT = 200_000_000  #: bytes of such orders that are kept for the next group, of all pools' sizes
_EXACT = 13  #: entities up to which every assignment of signs is tried: 8,192 of them
_CLOSE = 1e-12  #: relative; statistics this near are one: sums in another order differ in bits


def permutation_p(
    left: Sequence[float],
    right: Sequence[float],
    *,
    seed: Sequence[object] = (),
    permutations: int | None = None,
) -> float:
    """Two-sided p of mean(left) - mean(right) when entities swap groups at random.

    Each value is the mean of one entity, so that mentions of one name are never taken for
    independent ones. The statistic is Welch's t, which keeps its level where the groups' spreads
    differ, too (Janssen 1997; Chung and Romano 2013). The observed labelling counts as one of
    the permutations (Phipson and Smyth 2010): p is never 0. The same values and `seed` give the
    same p. `permutations` are drawn, by default `PERMUTATIONS`, fewer from large pools. Raises
    ValueError where a side has fewer than two entities.
    """
    pool = np.concatenate([np.sort(np.asarray(left, float)), np.sort(np.asarray(right, float))])
    size = len(left)
    if min(size, len(pool) - size) < 2:
        raise ValueError("a permutation test needs at least two entities on each side")
    pool = pool - pool.mean()  # sums of squares keep their digits
    observed = float(welch_t(pool, np.arange(size)[None, :])[0])
    drawn = permutations or (PERMUTATIONS if len(pool) <= _LARGE_POOL else _FEWER)
    least, extreme = observed * (1 - _CLOSE), 0
    for order in _labellings(len(pool), size, drawn, seed):
        extreme += int(np.sum(welch_t(pool, order) >= least))
    return (extreme + 1) / (drawn + 1)


def _labellings(
    pool: int, size: int, drawn: int, seed: Sequence[object]
) -> Iterator[NDArray[np.integer[Any]]]:
    """`drawn` random sets of `size` places of the pool, some (sets, size) at a time.

    From a large pool all groups take theirs from the same random orders: drawing orders again for
    each takes nearly all of the time, and a p is no less valid for another's having the same.
    """
    if pool > _SHARING_POOL and pool * drawn <= _SHARED:
        orders = _ORDERS.of(pool, drawn)
        for start in range(0, drawn, max(1, _CELLS // size)):
            yield orders[start : start + max(1, _CELLS // size), :size]
        return
    random = generator("permutation", *seed)
    for rows in _portions(drawn, max(1, _CELLS // pool)):
        yield random.random((rows, pool)).argpartition(size - 1, axis=1)[:, :size]


class _Orders:
    """Random orders of the places of large pools; those used last stay in memory.

    Groups of one table have pools of a dozen sizes, which come back in every table.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], NDArray[np.unsignedinteger[Any]]] = OrderedDict()
        self._lock = Lock()

    def of(self, pool: int, drawn: int) -> NDArray[np.unsignedinteger[Any]]:
        """(drawn, pool) places, every row an order."""
        with self._lock:
            orders = self._kept.pop((pool, drawn), None)
            if orders is None:
                orders = _ordered(pool, drawn)
                room = _KEPT - orders.nbytes
                while self._kept and sum(kept.nbytes for kept in self._kept.values()) > room:
                    self._kept.popitem(last=False)
            self._kept[pool, drawn] = orders
        return orders


_ORDERS = _Orders()


def _ordered(pool: int, drawn: int) -> NDArray[np.unsignedinteger[Any]]:
    """(drawn, pool) places, every row an order: the same on machines with more or fewer cores."""
    orders = np.empty((drawn, pool), dtype=np.min_scalar_type(pool))
    blocks = range(0, drawn, _BLOCK)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda first: _shuffle(orders[first : first + _BLOCK], first), blocks))
    return orders


def _shuffle(orders: NDArray[np.unsignedinteger[Any]], first: int) -> None:
    """Fill the rows from `first` on with random orders, by a generator of their own."""
    pool = orders.shape[1]
    random = generator("orders of a large pool", pool, first)
    rows = max(1, _SHUFFLED // pool)
    places = np.tile(np.arange(pool), (min(rows, len(orders)), 1))  # this type is shuffled fastest
    for start in range(0, len(orders), rows):
        some = orders[start : start + rows]
        some[:] = random.permuted(places[: len(some)], axis=1)  # other threads run meanwhile


def sign_flip_p(
    changes: Sequence[float], *, seed: Sequence[object] = (), permutations: int = PERMUTATIONS
) -> float:
    """Two-sided p of a mean change of 0 when each entity's change has its sign by chance.

    Up to 13 entities every assignment of signs is tried and p is exact (Fisher 1935, section 21);
    beyond, `permutations` are drawn and the observed one counts among them (Phipson and Smyth
    2010). The mean orders the assignments as Student's t does: the sum of squares is the same for
    all. Raises ValueError without any change.
    """
    if not len(changes):
        raise ValueError("a sign-flip test needs at least one change")
    values = np.sort(np.asarray(changes, float))
    least = abs(float(values.sum())) * (1 - _CLOSE)
    if len(values) <= _EXACT:
        every = np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1
        return float(np.mean(_flipped(values, every.astype(bool)) >= least))
    random, extreme = generator("sign flips", *seed), 0
    rows = max(1, _CELLS // len(values))
    for done in range(0, permutations, rows):
        drawn = random.random((min(rows, permutations - done), len(values))) < 0.5
        extreme += int(np.sum(_flipped(values, drawn) >= least))
    return (extreme + 1) / (permutations + 1)


def _flipped(values: NDArray[np.float64], flips: NDArray[np.bool_]) -> NDArray[np.float64]:
    """|sum| (assignments,) of values whose sign is turned where `flips` is True."""
    sums = np.where(flips, -values, values).sum(axis=1)
    return np.asarray(np.abs(sums), dtype=np.float64)


def welch_t(pool: NDArray[np.float64], chosen: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """|t| (permutations,) of the `chosen` (permutations, size) entities against the others.

    `pool` (entities,) has a mean near 0, so that sums of squares keep their digits.
    """
    left, right = chosen.shape[1], len(pool) - chosen.shape[1]
    values = pool[chosen]
    total, squares = values.sum(axis=1), np.square(values).sum(axis=1)
    variance = _squared_error(total, squares, left)
    variance += _squared_error(pool.sum() - total, np.square(pool).sum() - squares, right)
    difference = np.abs(total / left - (pool.sum() - total) / right)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = difference / np.sqrt(variance)
    return np.where(difference == 0.0, 0.0, t)


def _squared_error(
    total: NDArray[np.float64], squares: NDArray[np.float64], size: int
) -> NDArray[np.float64]:
    """Squared standard error of a mean over `size` values with these sums."""
    return np.maximum(squares - total**2 / size, 0.0) / (size - 1) / size


def _portions(total: int, most: int) -> list[int]:
    return [min(most, total - done) for done in range(0, total, most)]


def poisson_weights(names: Sequence[str], resamples: int, seed: int) -> NDArray[np.uint8]:
    """Weights (len(names), resamples) of a Poisson bootstrap, sampled for each name by itself.

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
