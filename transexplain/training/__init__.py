"""Training of classifiers: staged unfreezing, checkpoints that resume to the bit, curves."""

from typing import Any

__all__ = ["forget", "train"]


def __getattr__(name: str) -> Any:
    """`train` and `forget`, loaded on first use: plans are read without torch, and without ignite.

    Raises ConfigurationError where ignite, which the loop of every fit runs on, is not installed.
    """
    if name in __all__:
        from transexplain.registry import require

        require("ignite", "training")
        from transexplain.training import training_runs

        return getattr(training_runs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
