"""Drawn items looked at again: a mention removed or replaced, or another model asked."""

from transexplain.checking.checks import Checks

__all__ = ["Checks"]
