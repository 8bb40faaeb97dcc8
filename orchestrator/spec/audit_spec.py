"""The audit specification: one YAML file, every key checked, every unknown key refused."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import typer
from pydantic import BeforeValidator, Field, JsonValue, model_validator

from orchestrator.spec.data_section import (
    DataOption,
    DataSection,
    DeviceOption,
    LabelOption,
    LimitOption,
    ModelOption,
    ModelSection,
    TextOption,
)
from orchestrator.spec.evaluation_section import EvaluationSection
from orchestrator.spec.groups_section import (
    GroupsSection,
    ImpactSection,
    LexiconOption,
    PracticalSection,
    ReferenceOption,
    ScenarioSection,
)
from orchestrator.spec.method_section import ExplainSection, MethodOption, MethodSection
from orchestrator.spec.spec_document import (
    SpecSection,
    absolute_path,
    apply_overrides,
    as_texts,
    from_text,
    read_document,
    validated,
)
from transexplain.errors import ConfigurationError, SpecError
from transexplain.files import remote_files
from transexplain.files.paths import AnyPath
from transexplain.methods.explainer_files import explainer_facts, is_learned
from transexplain.methods.method_table import explainer_of
from transexplain.store.sink_files import RUN
from transexplain.types.dataset_labels import BY_INDEX
from transexplain.types.items import EntityGroup
from transexplain.types.plans import (
    AuditPlan,
    Join,
    Keep,
    LongTexts,
    PrivacyPlan,
    QueuePlace,
    Sink,
    StoreText,
    check_long_texts,
)
from transexplain.types.scores import ExactPlan, MethodSpec

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel


class RedactSection(SpecSection):
    """The function that blanks parts of texts; its file lies in the specification's folder."""

    shorthand: ClassVar[str] = "function"

    function: str = Field(description="package.module:function")
    file: str | None = Field(default=None, description="of its module, beside the specification")
    sha256: str | None = Field(default=None, description="of that file")

    def with_hook_file(self, folder: Path | None) -> Self:
        """The section with the file of its function, if that lies in the specification's folder.

        Raises SpecError where the file was given: only one that was found is run.
        """
        from transexplain.text.privacy import hook_file

        if self.file is not None or self.sha256 is not None:
            raise SpecError("redact.file and redact.sha256 are found, not given; leave them out")
        if folder is None or (hook := hook_file(self.function, folder)) is None:
            return self
        return self.model_copy(update={"file": str(hook[0]), "sha256": hook[1]})


def privacy_plan(
    store_text: StoreText,
    redact: RedactSection | None,
    data: DataSection,
    recogniser: str | None = None,
) -> PrivacyPlan | None:
    """The treatment of texts before they are stored; None where they stay as they are.

    Raises:
        ConfigurationError: the key is missing or short, the hook cannot be loaded.
        SpecError: the data or a recogniser name entities, which the tables need and the setting
            would take away.
    """
    if store_text == "full" and redact is None:
        return None
    from transexplain.auditing.text_redaction import TextKey
    from transexplain.text.privacy import load_hook

    if redact is not None:
        load_hook(redact.function, redact.file or "", redact.sha256 or "")
    named = {"data.spans": data.spans, "groups.recogniser": recogniser}
    naming = next((name for name, value in named.items() if value is not None), None)
    if naming is not None and store_text != "hashed":
        raise SpecError(
            f"{naming} is {named[naming]!r}: its entities are named as the texts spell them, "
            "and the group tables are by entity. Use store_text: hashed, which "
            "distinguishes entities without their names"
        )
    key = TextKey.from_environment().fingerprint if store_text == "hashed" else ""
    return PrivacyPlan(
        store_text=store_text,
        redact=redact.function if redact else None,
        key=key,
        redact_file=redact.file or "" if redact else "",
        redact_sha256=redact.sha256 or "" if redact else "",
    )


def private(plan: AuditPlan) -> AuditPlan:
    """The plan without names that the data give entities, where texts are not stored."""
    if plan.privacy is None or plan.check is None:
        return plan
    listed = {name for group in plan.groups for name in (*group.terms, *group.entities.values())}
    counts = {name: count for name, count in plan.check.counts.items() if name in listed}
    return replace(plan, check=replace(plan.check, counts=counts))


class QueueSection(SpecSection):
    """The place of the run among others that want workers."""

    priority: int = Field(
        default=0, ge=-1000, le=1000, description="among runs that wait for workers; higher first"
    )
    share: float = Field(
        default=1.0,
        gt=0,
        allow_inf_nan=False,
        description="weight among runs of the same priority, by which workers are divided",
    )
    most_workers: int | None = Field(
        default=None, ge=1, description="shards in hand at once; default: no cap"
    )

    @property
    def place(self) -> QueuePlace:
        """The place as the store keeps it."""
        return QueuePlace(priority=self.priority, share=self.share, most_workers=self.most_workers)


class SinkSection(SpecSection):
    """Where explained items are written besides the store."""

    shorthand: ClassVar[str] = "to"

    to: str | None = Field(
        default=None,
        description="folder or URL that gets a Parquet file for each shard; {run} in it stands for "
        "the run's id",
    )
    keep: Keep = Field(
        default="both",
        description="both: explained items lie in the store, too; sink: in the files alone",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.to is None:
            if self.keep == "sink":
                raise ValueError("keep: sink needs `to`: a folder or URL with {run} in it")
            return self
        if self.to.count(RUN) != 1 or "{" in self.to.replace(RUN, ""):
            raise ValueError(
                f"the sink {self.to!r} must hold {RUN} once, and no other braces: two runs would "
                f"write the same files. Write for example s3://BUCKET/run-{RUN}/"
            )
        if any(character in self.to for character in "*?["):
            raise ValueError(f"the sink {self.to!r} is a pattern; name one folder")
        return self

    def absolute(self) -> Self:
        """The section with a folder that is found from every other."""
        if self.to is None or remote_files.is_url(self.to):
            return self
        return self.model_copy(update={"to": absolute_path(self.to)})

    def planned(self) -> Sink | None:
        """The sink of the plan; None: results lie in the store alone.

        Raises ConfigurationError: a URL that cannot be used, or a package for it is missing.
        """
        if self.to is None:
            return None
        url = self.absolute().to or ""
        if remote_files.is_url(url):
            remote_files.check_url(url.rstrip("/"))
        return Sink(url=url, keep=self.keep)


_BEGINS = "an audit starts with `model:` and `data:`"

TargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        help="predicted, label, all, class:NAME, top:K, contrast:A-B; may be repeated",
    ),
]
NameOption = Annotated[str | None, typer.Option("--name", help="name of the audit")]
LongTextOption = Annotated[
    str | None,
    typer.Option("--long-text", help="texts too long for the model: truncate, window or error"),
]
WindowOption = Annotated[
    int | None, typer.Option("--window", help="positions of a window (with --long-text window)")
]
StrideOption = Annotated[
    int | None,
    typer.Option("--stride", help="positions of text between windows; default: no overlap"),
]
JoinOption = Annotated[
    str | None, typer.Option("--join", help="mean (default) or sum of the windows' logits")
]


class ClassificationSection(SpecSection):
    """A class of the user's own: the sum of some of the model's logits."""

    name: str
    classes: Annotated[tuple[str, ...], BeforeValidator(as_texts)] = Field(min_length=1)


def _labels(value: Any) -> Any:
    if not isinstance(value, Mapping) and value != BY_INDEX:
        raise ValueError(
            f"is {value!r}; it is a mapping {{dataset label: class}}, or the word {BY_INDEX}"
        )
    return as_texts(value) if isinstance(value, Mapping) else value


#: how the labels of a dataset are read as classes
Labels = Annotated[dict[str, str] | Literal["by-index"], BeforeValidator(_labels)]


def _targets(value: Any) -> Any:
    return as_texts([value] if isinstance(value, Mapping) else value)


class AuditSpec(SpecSection):
    """One audit, as a person writes it."""

    options: ClassVar[Mapping[str, str]] = {
        **{name: name for name in ("name", "long_text", "window", "stride")},
        "target": "targets",
        "join": "long_text_join",
    }

    name: str = Field(
        default="audit",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="name of the audit, in its report and the names of files",
    )
    model: Annotated[ModelSection, from_text(ModelSection)]
    data: Annotated[DataSection, from_text(DataSection)]
    method: Annotated[MethodSection, from_text(MethodSection)] = MethodSection()
    explain: ExplainSection | None = Field(
        default=None, description="instead of method: a cheap one with an exact sample"
    )
    targets: Annotated[tuple[str | dict[str, JsonValue], ...], BeforeValidator(_targets)] = Field(
        default=("predicted",),
        min_length=1,
        description="what is explained: predicted, label, top:K, all, class:NAME, index:NUMBER, "
        "contrast:A-B, or {contrast: [A, B]} where names hold hyphens",
    )
    classifications: tuple[ClassificationSection, ...] = ()
    labels: Labels = Field(
        default_factory=dict,
        description="dataset label -> class, or by-index: label i is the model's class i; default: "
        "by name",
    )
    label_separator: str | None = Field(
        default=None,
        min_length=1,
        description="what stands between labels in a cell, where the model may give several; "
        "default: a cell is one label, or a list",
    )
    thresholds: (
        Annotated[float, Field(gt=0, lt=1)]
        | Annotated[dict[str, float], BeforeValidator(as_texts)]
        | None
    ) = Field(
        default=None,
        description="where the model may give an item several labels: the probability from which "
        "each is predicted, one number or {label: number}; default: 0.5",
    )
    groups: Annotated[GroupsSection, from_text(GroupsSection)] | None = None
    evaluation: EvaluationSection = EvaluationSection()
    queue: QueueSection = QueueSection()
    long_text: LongTexts = Field(
        default="truncate",
        description="for texts that the model cannot take whole: cut, read in windows, fail",
    )
    max_length: int | None = Field(default=None, ge=3, description="positions per text")
    window: int | None = Field(default=None, ge=3, description="positions per window")
    stride: int | None = Field(
        default=None, ge=1, description="positions of text between windows; default: no overlap"
    )
    long_text_join: Join = Field(
        default="mean", description="the explained logit is the mean or the sum of the windows'"
    )
    batch_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto",
        description="positions per batch; auto: 2,048 on a CPU, what measuring finds on a card",
    )
    shard_size: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default="auto", description="items per shard; auto: 256, up to 4,096 in large data"
    )
    sink: Annotated[SinkSection, from_text(SinkSection)] = SinkSection()
    store_text: StoreText = Field(default="full", description="what is stored of texts")
    redact: Annotated[RedactSection, from_text(RedactSection)] | None = Field(
        default=None, description="package.module:function, which says what to blank in texts"
    )
    tolerance: float = Field(default=0.0, ge=0, le=1, description="share of items that may fail")
    max_attempts: int = Field(default=3, ge=1, description="at a shard, before it is given up")

    @model_validator(mode="after")
    def _one_way_to_explain(self) -> "AuditSpec":
        if self.explain is not None and "method" in self.model_fields_set:
            raise ValueError(
                "`method` and `explain` both say how items are explained; give `method` for one "
                "method alone, or `explain` for a cheap one with an exact sample"
            )
        return self

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

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The specification that `model_dump` wrote, which names every default too."""
        if document.get("explain") is not None:
            document = {key: value for key, value in document.items() if key != "method"}
        return cls.model_validate(document)

    @property
    def explained_by(self) -> MethodSpec:
        """The method that explains every item."""
        return (self.explain or self.method).planned

    def lexicon_groups(self) -> tuple[EntityGroup, ...]:
        """The groups of the lexicons; raises LexiconError or SpecError."""
        return self.groups.lexicon_groups(self.data) if self.groups else ()

    def privacy_plan(self) -> PrivacyPlan | None:
        """The treatment of texts before they are stored; raises ConfigurationError."""
        names = self.groups is not None and self.groups.entity_types != ()
        recogniser = self.groups.recogniser if self.groups and names else None
        return privacy_plan(self.store_text, self.redact, self.data, recogniser)

    def exact_plan(self) -> ExactPlan | None:
        """The plan of the exact method, if it corrects; raises ConfigurationError."""
        return self.explain.exact_plan() if self.explain else None

    def refuse_other_models(self, model: "LoadedModel") -> None:
        """Raise ConfigurationError where an explainer was trained for another model."""
        for method in (self.explained_by, *self.evaluation.named):
            if is_learned(method.name):
                where, ref = explainer_of(method.params), model.ref
                facts = explainer_facts(method)
                facts.refuse(digest=ref.digest, source=ref.source, where=where)


#: the sections by their key, with those within behind a point
SECTIONS: Mapping[str, type[SpecSection]] = {
    "model": ModelSection,
    "data": DataSection,
    "method": MethodSection,
    "explain": ExplainSection,
    "groups": GroupsSection,
    "groups.practical": PracticalSection,
    "groups.scenario": ScenarioSection,
    "groups.impact": ImpactSection,
    "classifications": ClassificationSection,
    "sink": SinkSection,
    "redact": RedactSection,
    "evaluation": EvaluationSection,
    "queue": QueueSection,
}


def overrides_of(**options: Any) -> dict[str, Any]:
    """Command-line options as keys of the specification; what was not given is left out."""
    places = dict(AuditSpec.options)
    for name, section in SECTIONS.items():
        places |= {option: f"{name}.{key}" for option, key in section.options.items()}
    return {places[name]: value for name, value in options.items() if value not in (None, [])}


#: the options of a command line that belong to a specification, in the order of the help
OPTIONS: Mapping[str, Any] = {
    "model": ModelOption,
    "device": DeviceOption,
    "data": DataOption,
    "text": TextOption,
    "label": LabelOption,
    "limit": LimitOption,
    "target": TargetsOption,
    "method": MethodOption,
    "lexicon": LexiconOption,
    "reference": ReferenceOption,
    "long_text": LongTextOption,
    "window": WindowOption,
    "stride": StrideOption,
    "join": JoinOption,
    "name": NameOption,
}


def load_spec(
    path: AnyPath | None = None,
    overrides: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> AuditSpec:
    """Read a specification.

    Args:
        path: YAML file, also at a URL; None when everything comes from `overrides`.
        overrides: top-level keys from command-line options; None values are ignored.
        settings: `a.b=c` texts (`--set`); the value is read as YAML.

    Raises:
        SpecError: unreadable file, unknown key or wrong value, each named.
    """
    document = {} if path is None else read_document(path, "audit", _BEGINS)
    apply_overrides(document, overrides or {}, settings, SECTIONS)
    what = f"the audit of {path or 'the command line'}"
    spec = validated(AuditSpec, document, what, SECTIONS)
    if spec.redact is None:
        return spec
    folder = path.parent if isinstance(path, Path) else None
    redact = spec.redact.with_hook_file(folder)
    return spec if redact is spec.redact else spec.model_copy(update={"redact": redact})
