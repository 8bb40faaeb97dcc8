"""Encoders that kill the process they are in, hang in it or fail, by the items that they are given.

They do nothing in the process of the tests, so that they can be made and sent from there.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Collection, Sequence
from typing import Any

from transexplain.models.loaded_model import Encoded, Encoder, Padded
from transexplain.types.items import Item, ItemFailure


class Poisonous:
    """Encodes as another encoder does, but for some items (ids)."""

    def __init__(
        self,
        encoder: Encoder,
        *,
        kills: Collection[str] = (),
        hangs: Collection[str] = (),
        fails: Collection[str] = (),
    ) -> None:
        self.encoder, self.kills, self.hangs, self.fails = encoder, kills, hangs, fails

    def encode(self, items: Sequence[Item], **options: Any) -> list[Encoded | ItemFailure]:
        if multiprocessing.parent_process() is not None:
            ids = {one.id for one in items}
            if ids.intersection(self.kills):
                os.kill(os.getpid(), signal.SIGKILL)
            if ids.intersection(self.hangs):
                time.sleep(3600)
            if ids.intersection(self.fails):
                raise UnsendableError("by hand", "for the test")
        return self.encoder.encode(items, **options)

    def padded(self, encoded: Sequence[Encoded]) -> Padded:
        return self.encoder.padded(encoded)


class UnsendableError(ValueError):
    """An error that cannot be made again from what pickle keeps of it."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one}, {other}")


class Closure:
    """An encoder that cannot be sent at all."""

    def __init__(self, encoder: Encoder) -> None:
        self.encode, self.padded = encoder.encode, encoder.padded
        self.held = lambda: None
