"""Verifying a run: every hash once more, every stored byte, and a sample explained again."""

from transexplain.provenance.verification import Check, VerifyRequest
from transexplain.provenance.verify import verify

__all__ = ["Check", "VerifyRequest", "verify"]
