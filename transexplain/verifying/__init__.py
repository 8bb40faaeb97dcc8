"""Verifying a run: every hash once more, every stored byte, and a sample explained again."""

from transexplain.verifying.request import Check, VerifyRequest
from transexplain.verifying.verify import verify

__all__ = ["Check", "VerifyRequest", "verify"]
