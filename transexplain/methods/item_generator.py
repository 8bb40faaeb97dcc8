"""Random numbers that belong to an item, so that no result depends on its batch."""

import torch

from transexplain.randomness import keyed_number


def generator_of(seed: int, item_id: str, purpose: str = "") -> torch.Generator:
    """A generator on the CPU seeded by `seed`, the item's id and what it is for.

    Draw for the item's own positions, never for the padded length: then an item has the same
    numbers in every batch.
    """
    number = keyed_number(seed, item_id, purpose, algorithm="sha256", byte_order="little")
    return torch.Generator().manual_seed(number % 2**63)
