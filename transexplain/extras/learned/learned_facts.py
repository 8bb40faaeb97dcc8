"""The facts in the file of a learned explainer."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
from safetensors import SafetensorError, safe_open

from transexplain.errors import ConfigurationError
from transexplain.files.paths import local_path
from transexplain.types.scores import MethodSpec, TeacherAgreement

VERSION = 1
_KEY = "transexplain.explainer"  #: of the metadata of the safetensors file


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """Everything that the shape of an explainer's weights follows from."""

    layers: tuple[int, ...]  #: hidden states that are read; 0: the input of the first layer
    widths: tuple[int, ...]  #: D of each of them
    classes: int  #: C
    width: int  #: of the explainer's own hidden vectors
    depth: int  #: attention layers of its own
    heads: int
    conserve: bool  #: positions are made to sum to the logit minus predicted constants


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The header of an explainer's file."""

    architecture: Architecture
    base: str  #: digest of the model whose hidden states it reads
    base_name: str  #: where that model lay
    classes: tuple[str, ...]
    teacher: MethodSpec
    at: str  #: input layer that the teacher measured at
    mode: str  #: `separate` or `joint`
    forwards: float  #: operations of an explanation, in forward passes of the base
    agreement: TeacherAgreement | None = None
    version: int = VERSION

    def to_metadata(self) -> dict[str, str]:
        """As the metadata of a safetensors file, which holds texts alone."""
        return {_KEY: json.dumps(asdict(self), sort_keys=True)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str] | None, where: str) -> "Facts":
        """Read what `to_metadata` wrote; raises ConfigurationError."""
        text = (metadata or {}).get(_KEY)
        if text is None:
            raise ConfigurationError(
                f"{where} holds no explainer; `transexplain train` writes one as "
                "explainer.safetensors"
            )
        try:
            version = json.loads(text).get("version")
            if version == VERSION:
                return msgspec.json.decode(text, type=cls)
        except (ValueError, AttributeError, msgspec.MsgspecError) as error:
            raise ConfigurationError(
                f"the explainer {where} is damaged: its facts cannot be read "
                f"({type(error).__name__}: {error}); copy it again or train it again"
            ) from None
        raise ConfigurationError(
            f"the explainer {where} is of version {version}, this software reads {VERSION}: train "
            "it again"
        )

    def refuse(self, *, digest: str, source: str, where: str) -> None:
        """Raise ConfigurationError unless the model with `digest` is the base."""
        if digest != self.base:
            raise ConfigurationError(
                f"the explainer {where} was trained for another model: for the one with digest "
                f"{self.base[:12]} ({self.base_name}), and {source} has {digest[:12]}. Train one "
                "for this model: `transexplain train` with `optimisation: {epochs: 0}` leaves the "
                "model as it is"
            )


def read_facts(path: str | Path) -> Facts:
    """The facts in the header of the file at `path`; no weight is read.

    Raises ConfigurationError where it is no explainer.
    """
    try:
        with safe_open(local_path(path), framework="np") as file:
            metadata = file.metadata()
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the explainer {path}: {error.strerror or error}; give the "
            "explainer.safetensors that `transexplain train` wrote"
        ) from None
    except SafetensorError as error:
        raise ConfigurationError(f"{path} is not a safetensors file: {error}") from None
    return Facts.from_metadata(metadata, str(path))
