"""Drawn items looked at again: a mention removed or replaced, or another model asked."""

from transexplain.checking.checks import Checks
from transexplain.checking.exact import ExactChecks

__all__ = ["Checks", "ExactChecks"]
