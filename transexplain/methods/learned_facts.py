"""The facts in the file of a learned explainer, and the explainers that a plan names."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

from transexplain.errors import ConfigurationError
from transexplain.files.paths import local_path
from transexplain.types.plans import AuditPlan, SourceFile
from transexplain.types.scores import MethodSpec

VERSION = 1
_KEY = "transexplain.explainer"  #: of the metadata of the safetensors file
_LONGEST = 1 << 24  #: bytes of a header that are read
_CHUNK = 1 << 20


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
class Agreement:
    """How near an explainer comes to its teacher, over items that it did not learn from."""

    items: int
    rank_correlation: float  #: Spearman's, over an item's own positions, mean over items
    relative_error: float  #: |learned - taught| / |taught|, Euclidean, median over items
    by_class: Mapping[str, float] = field(default_factory=dict)  #: rank correlation


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
    agreement: Agreement | None = None
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
            return cls._of(json.loads(text), where)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"the explainer {where} is damaged: its facts cannot be read "
                f"({type(error).__name__}: {error}); copy it again or train it again"
            ) from None

    @classmethod
    def _of(cls, content: dict[str, Any], where: str) -> "Facts":
        if content.get("version") != VERSION:
            raise ConfigurationError(
                f"the explainer {where} is of version {content.get('version')}, this software "
                f"reads {VERSION}: train it again"
            )
        shape, agreement = content.pop("architecture"), content.pop("agreement")
        return cls(
            **{
                **content,
                "architecture": Architecture(
                    **{**shape, "layers": tuple(shape["layers"]), "widths": tuple(shape["widths"])}
                ),
                "agreement": None if agreement is None else Agreement(**agreement),
                "classes": tuple(content["classes"]),
                "teacher": MethodSpec(**content["teacher"]),
            }
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
    file = local_path(path)
    try:
        with file.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if not 0 < length <= _LONGEST:
                raise ValueError("its header has no plausible length")
            header = json.loads(handle.read(length))
            if not isinstance(header, dict):
                raise ValueError("its header is no JSON object")
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the explainer {path}: {error.strerror or error}; give the "
            "explainer.safetensors that `transexplain train` wrote"
        ) from None
    except ValueError as error:
        raise ConfigurationError(f"{path} is not a safetensors file: {error}") from None
    return Facts.from_metadata(header.get("__metadata__"), str(path))


def digest_of(path: str | Path) -> str:
    """Sha256 of the bytes of the file at `path`."""
    digest = hashlib.sha256()
    with local_path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def as_parameters(path: str | Path) -> dict[str, Any]:
    """The parameters of method `learned` that name the file at `path` and its bytes."""
    return {"explainer": str(local_path(path).absolute()), "sha256": digest_of(path)}


LEARNED = "learned"  #: the method


def explainers_of(plan: AuditPlan) -> tuple[SourceFile, ...]:
    """The explainers of a plan's methods whose bytes it names, each once."""
    methods = [plan.method, *([plan.exact.method] if plan.exact else [])]
    methods += [method.method for method in plan.evaluation.methods] if plan.evaluation else []
    files = (_file(method.params) for method in methods if method.name == LEARNED)
    return tuple(dict.fromkeys(file for file in files if file is not None))


def explainers_in(document: Any) -> Iterator[SourceFile]:
    """The same of a plan's stored document; a file that is named twice comes twice."""
    if isinstance(document, Mapping):
        params = _params(document)
        if params is not None and (file := _file(params)) is not None:
            yield file
        entries: Any = document.values()
    else:
        entries = document if isinstance(document, list | tuple) else ()
    for entry in entries:
        yield from explainers_in(entry)


def without_folders(document: Any) -> Any:
    """A plan's document with explainers by their last name, where their bytes are named."""
    if isinstance(document, Mapping):
        facts = {key: without_folders(value) for key, value in document.items()}
        params = _params(document)
        return facts if params is None else {**facts, "params": _named(params)}
    if isinstance(document, list | tuple):
        return [without_folders(entry) for entry in document]
    return document


def check_explainers(plan: AuditPlan) -> None:
    """Raise ConfigurationError where an explainer of the plan is missing or not readable."""
    for explainer in explainers_of(plan):
        read_facts(explainer.path)


def portable(method: MethodSpec) -> MethodSpec:
    """A method without folders: equal wherever its explainer is stored."""
    if method.name != LEARNED or _file(method.params) is None:
        return method
    params = {name: value for name, value in method.params.items() if name != "explainer"}
    return MethodSpec(name=method.name, params=params)


def _params(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The parameters, where a document is that of the method; None: it is another."""
    params = document.get("params")
    return params if document.get("name") == LEARNED and isinstance(params, Mapping) else None


def _file(params: Mapping[str, Any]) -> SourceFile | None:
    path, digest = params.get("explainer"), params.get("sha256")
    return SourceFile(path=path, sha256=digest) if path and digest else None


def _named(params: Mapping[str, Any]) -> dict[str, Any]:
    file = _file(params)
    return {**params, **({"explainer": PurePath(file.path).name} if file else {})}
