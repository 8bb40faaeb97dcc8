"""What a manifest is: two parts, and the hashes that name the run and the whole."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transexplain.manifests.canonical import canonical, sha256_of

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What a run was made from, and how it went."""

    inputs: Mapping[str, Any]  #: what decides the numbers, wherever it lies and whoever computes
    execution: Mapping[str, Any]  #: who computed, when, where the inputs lay, what was saved

    @property
    def name(self) -> str:
        """Sha256 of the canonical `inputs`: the same for two runs over the same bytes."""
        return sha256_of(self.inputs)

    @property
    def document(self) -> dict[str, Any]:
        """Everything as one JSON object."""
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "inputs": self.inputs,
            "execution": self.execution,
        }

    @property
    def text(self) -> bytes:
        """The canonical JSON of the document: what a manifest's file holds, to the byte."""
        return canonical(self.document)

    @property
    def sha256(self) -> str:
        """Sha256 of `text`, which `sha256sum` gives of the file."""
        return hashlib.sha256(self.text).hexdigest()
