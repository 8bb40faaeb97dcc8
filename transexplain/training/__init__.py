"""Training of classifiers: staged unfreezing, checkpoints that resume to the bit, curves."""

from typing import Any

__all__ = ["train"]


def __getattr__(name: str) -> Any:
    """`train`, loaded on first use: plans are read without torch."""
    if name == "train":
        from transexplain.training.course import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
