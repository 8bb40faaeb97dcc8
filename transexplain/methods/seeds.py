"""Random numbers that belong to an item, so that no result depends on its batch."""

import hashlib

import torch


def generator_of(seed: int, item_id: str, purpose: str = "") -> torch.Generator:
    """A generator on the CPU seeded by `seed`, the item's id and what it is for.

    Draw for the item's own positions, never for the padded length: then an item has the same
    numbers in every batch.
    """
    text = f"{seed}\0{item_id}\0{purpose}".encode()
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "little", signed=False)
    return torch.Generator().manual_seed(number % 2**63)
