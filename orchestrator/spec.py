"""The audit specification: one YAML file, every key checked, every unknown key refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, model_validator

from orchestrator.documents import put_over, read_document, validated
from orchestrator.sections import (
    ClassificationSection,
    DataSection,
    EvaluationSection,
    ExplainSection,
    GroupsSection,
    MethodSection,
    ModelSection,
    RedactSection,
    Strict,
    from_string,
)
from transexplain.errors import ConfigurationError, SpecError
from transexplain.evaluations import MethodSpec
from transexplain.plans import Join, LongTexts, StoreText, check_long_texts

_BEGINS = "an audit starts with `model:` and `data:`"
#: `model: path` stands for `model: {source: path}`, and so on
_SHORTHAND = {"model": "source", "data": "source", "method": "name", "groups": "lexicon"}


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str | Mapping) else value


def _as_text(value: Any) -> Any:
    """YAML reads `0: bad` with a number as key; labels are texts."""
    if isinstance(value, Mapping):
        return {str(key): str(entry) for key, entry in value.items()}
    return value


class AuditSpec(Strict):
    """One audit, as a person writes it."""

    name: str = Field(default="audit", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    model: Annotated[ModelSection, from_string("source")]
    data: Annotated[DataSection, from_string("source")]
    method: Annotated[MethodSection, from_string("name")] = MethodSection()
    explain: ExplainSection | None = Field(
        default=None, description="instead of method: a cheap one with an exact sample"
    )
    targets: Annotated[tuple[str | dict[str, JsonValue], ...], BeforeValidator(_as_list)] = Field(
        default=("predicted",), min_length=1
    )
    classifications: tuple[ClassificationSection, ...] = ()
    labels: Annotated[dict[str, str], BeforeValidator(_as_text)] = Field(
        default_factory=dict, description="dataset label -> class"
    )
    groups: Annotated[GroupsSection, from_string("lexicon")] | None = None
    evaluation: EvaluationSection = EvaluationSection()
    long_text: LongTexts = "truncate"
    max_length: int | None = Field(default=None, ge=3, description="positions per text")
    window: int | None = Field(default=None, ge=3, description="positions per window")
    stride: int | None = Field(
        default=None, ge=1, description="positions of text between windows; default: no overlap"
    )
    long_text_join: Join = Field(default="mean", description="of the windows' logits")
    batch_tokens: int = Field(default=2048, ge=1, description="positions per batch")
    shard_size: int = Field(default=256, ge=1, description="items per shard")
    payload: Literal["float16", "float32"] = Field(default="float16", description="stored form")
    store_text: StoreText = Field(default="full", description="what is stored of texts")
    redact: Annotated[RedactSection, from_string("function")] | None = Field(
        default=None, description="package.module:function, which says what to blank in texts"
    )
    tolerance: float = Field(default=0.0, ge=0, le=1, description="share of items that may fail")
    max_attempts: int = Field(default=3, ge=1)

    @model_validator(mode="after")
    def _one_way_to_explain(self) -> "AuditSpec":
        if self.explain is not None and "method" in self.model_fields_set:
            raise ValueError(
                "`method` and `explain` both say how items are explained; give `method` for one "
                "method alone, or `explain` for a cheap one with an exact sample"
            )
        return self

    @property
    def explained_by(self) -> MethodSpec:
        """The method that explains every item."""
        if self.explain is not None:
            return MethodSpec(name=self.explain.method, params=self.explain.params)
        return MethodSpec(name=self.method.name, params=self.method.params)

    @model_validator(mode="after")
    def _long_texts_agree(self) -> "AuditSpec":
        try:
            check_long_texts(
                self.long_text,
                max_length=self.max_length,
                window=self.window,
                stride=self.stride,
                join=self.long_text_join,
            )
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self


def load_spec(
    path: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> AuditSpec:
    """Read a specification.

    Args:
        path: YAML file; None when everything comes from `overrides`.
        overrides: top-level keys from command-line options; None values are ignored.
        settings: `a.b=c` texts (`--set`); the value is read as YAML.

    Raises:
        SpecError: unreadable file, unknown key or wrong value, each named.
    """
    document = {} if path is None else read_document(path, "audit", _BEGINS)
    put_over(document, overrides or {}, settings, _SHORTHAND)
    spec = validated(AuditSpec, document, f"the audit of {path or 'the command line'}", _known)
    return spec if spec.redact is None else _with_hook_file(spec, spec.redact, path)


def _with_hook_file(spec: AuditSpec, redact: RedactSection, path: Path | None) -> AuditSpec:
    """The specification with the file of its hook, where that lies beside it."""
    from transexplain.privacy import hook_file

    if redact.file is not None or redact.sha256 is not None:
        raise SpecError("redact.file and redact.sha256 are found, not given; leave them out")
    if path is None or (found := hook_file(redact.function, path.parent)) is None:
        return spec
    place = {"file": str(found[0]), "sha256": found[1]}
    return spec.model_copy(update={"redact": redact.model_copy(update=place)})


def _known(place: tuple[int | str, ...]) -> list[str]:
    sections: dict[str, type[BaseModel]] = {
        "model": ModelSection,
        "data": DataSection,
        "method": MethodSection,
        "explain": ExplainSection,
        "groups": GroupsSection,
        "classifications": ClassificationSection,
        "redact": RedactSection,
        "evaluation": EvaluationSection,
    }
    section = sections.get(str(place[0]), AuditSpec) if place else AuditSpec
    return list(section.model_fields)
