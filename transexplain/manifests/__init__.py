"""Manifests: which bytes, which software and which machine a run's numbers came from."""

from transexplain.manifests.build import manifest_of
from transexplain.manifests.record import Manifest

__all__ = ["Manifest", "manifest_of"]
