"""Random numbers by key: the streams that stored runs were made with, and their independence."""

import hashlib

import numpy as np
import pytest

from transexplain.randomness import generator, keyed_number, row_number, row_places


def test_numbers_are_those_of_stored_runs() -> None:
    assert keyed_number(7, "item") == int.from_bytes(
        hashlib.blake2b(b"7\0item", digest_size=8).digest(), "big"
    )
    little = keyed_number(7, "item", "noise", algorithm="sha256", byte_order="little")
    assert little == int.from_bytes(hashlib.sha256(b"7\0item\0noise").digest()[:8], "little")
    whole = keyed_number("step", 3, 1, bits=256, algorithm="sha256", separator=" ")
    assert whole == int.from_bytes(hashlib.sha256(b"step 3 1").digest())


def test_golden_numbers() -> None:
    assert keyed_number(0, "a") == 1574244910681746387
    assert generator("permutations", 0).integers(2**32, size=2).tolist() == [894084653, 2427374322]


def test_a_key_gives_one_stream_and_another_key_another() -> None:
    first, again, other = (generator(*key).random(8) for key in (("a", 1), ("a", 1), ("a", 2)))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_half_a_surrogate_pair_is_a_key() -> None:
    assert keyed_number("\ud800") != keyed_number("\ud801")


@pytest.mark.parametrize("seed", [0, -1, 2**63])
def test_places_order_rows_by_their_numbers(seed: int) -> None:
    numbers = [row_number(row, seed) for row in range(50)]
    assert np.argsort(row_places(50, seed)).tolist() == np.argsort(np.array(numbers)).tolist()
