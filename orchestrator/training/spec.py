"""The training specification: one YAML file, every key checked, every unknown key refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, JsonValue

from orchestrator.documents import put_over, read_document, validated
from orchestrator.sections import DataSection, Strict, from_string
from orchestrator.training.presets import PRESETS, with_preset
from transexplain.errors import SpecError

_BEGINS = "a training starts with `model:` and `data:`"
_SHORTHAND = {"data": "source", "validation": "source", "explainer": "mode"}


def _as_text(value: Any) -> Any:
    """YAML reads `0: bad` with a number as key; labels are texts."""
    if isinstance(value, Mapping):
        return {str(key): str(entry) for key, entry in value.items()}
    return value


def _as_names(value: Any) -> Any:
    """YAML reads `[0, 1]` and `[no, yes]` as numbers and truths; class names are texts."""
    return [_name(entry) for entry in value] if isinstance(value, list | tuple) else value


def _name(entry: Any) -> Any:
    if isinstance(entry, bool):
        raise ValueError(f"YAML reads this name as {entry}; put it into quotes")
    return str(entry) if isinstance(entry, int) else entry


class StagesSection(Strict):
    """Layer-wise unfreezing; `stages: none` trains everything from the first step."""

    head_epochs: int = Field(default=1, ge=0, description="epochs of the head alone")
    interval_epochs: int = Field(default=1, ge=1, description="epochs between two unfreezings")
    layers_per_interval: int = Field(default=2, ge=1, description="layers unfrozen together")
    decay: float = Field(default=0.5, gt=0, le=1, description="rate over that of the stage before")
    embeddings: bool = Field(default=True, description="unfreeze the embeddings too, last")


class OptimisationSection(Strict):
    """AdamW, its schedule and its end."""

    epochs: int = Field(default=8, ge=0, description="0: the model stays as it is")
    batch_size: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=3e-5, gt=0, allow_inf_nan=False)
    head_learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    embedding_weight_decay: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    augment: bool = Field(default=False, description="pictures: mirror and crop at random")
    clip: float | None = Field(default=1.0, gt=0, description="greatest norm of the gradient")
    warmup: float = Field(default=0.1, ge=0, lt=1, description="share of a stage's steps")
    patience: int | None = Field(
        default=None, ge=1, description="epochs without a better validation; null: no early end"
    )
    keep: Literal["best", "last"] = Field(default="best", description="weights that are kept")


class ValidationSection(Strict):
    """What early stopping and the best weights go by: a share of the data, or a source."""

    share: float | None = Field(default=None, ge=0, lt=1, description="of the data; default 0.1")
    source: str | None = Field(default=None, description="as data.source, with the same columns")


class ExplainerSection(Strict):
    """An explainer that learns what a relevance method says."""

    mode: Literal["none", "separate", "joint"] = "none"
    method: str = Field(default="lrp", description="the teacher; it measures logits")
    params: dict[str, JsonValue] = Field(default_factory=dict, description="of the teacher")
    weight: float = Field(default=0.1, gt=0, description="lambda of its loss, joint")
    epochs: int = Field(default=10, ge=1, description="separate; joint has the classifier's")
    batch_size: int = Field(default=32, ge=1, description="separate")
    patience: int | None = Field(default=None, ge=1, description="separate")
    learning_rate: float = Field(default=2e-3, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    classes: int | None = Field(
        default=2, ge=1, description="asked of each item: the predicted one and others; null: all"
    )
    layers: tuple[int, ...] | None = Field(
        default=None, min_length=1, description="that are read; default: first, middle, last"
    )
    width: int | None = Field(default=None, ge=1, description="default: a quarter of the model's")
    depth: int = Field(default=2, ge=1, description="attention layers of its own")
    conserve: bool = Field(default=True, description="positions sum to the logit less constants")


def _no_stages(value: Any) -> Any:
    return None if value == "none" else value


class TrainingSpec(Strict):
    """One training, as a person writes it."""

    name: str = Field(default="training", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    preset: Literal["joint-text", "joint-vision", "separate-text", "separate-vision"] | None = None
    model: str = Field(description="directory, hub id, or timm:NAME?checkpoint=FILE to start from")
    classes: Annotated[tuple[str, ...] | None, BeforeValidator(_as_names)] = Field(
        default=None, description="names by index; default: the model's own"
    )
    data: Annotated[DataSection, from_string("source")]
    validation: Annotated[ValidationSection, from_string("source")] = ValidationSection()
    labels: Annotated[dict[str, str], BeforeValidator(_as_text)] = Field(
        default_factory=dict, description="dataset label -> class"
    )
    output: str | None = Field(default=None, description="folder; default: trainings/NAME")
    seed: int = 0
    device: str = "cpu"
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_length: int | None = Field(default=None, ge=3, description="positions per text")
    stages: Annotated[StagesSection | None, BeforeValidator(_no_stages)] = StagesSection()
    optimisation: OptimisationSection = OptimisationSection()
    explainer: Annotated[ExplainerSection, from_string("mode")] = ExplainerSection()


def load_training(
    path: Path, overrides: Mapping[str, Any] | None = None, settings: Sequence[str] = ()
) -> TrainingSpec:
    """Read a specification; its keys win over those of its preset.

    Args:
        path: YAML file.
        overrides: keys from command-line options; None values are ignored.
        settings: `a.b=c` texts (`--set`); the value is read as YAML.

    Raises SpecError: unreadable file, unknown key, preset or wrong value, each named.
    """
    document = read_document(path, "training", _BEGINS)
    put_over(document, overrides or {}, settings, _SHORTHAND)
    preset = document.get("preset")
    if preset is not None:
        if not isinstance(preset, str) or preset not in PRESETS:
            raise SpecError(f"there is no preset {preset!r}; known: {', '.join(PRESETS)}")
        if isinstance(document.get("explainer"), str):
            document["explainer"] = {"mode": document["explainer"]}
        document = with_preset(document, PRESETS[preset])
    return validated(TrainingSpec, document, f"the training of {path}", _known)


def _known(place: tuple[int | str, ...]) -> list[str]:
    sections: dict[str, type[BaseModel]] = {
        "data": DataSection,
        "validation": ValidationSection,
        "stages": StagesSection,
        "optimisation": OptimisationSection,
        "explainer": ExplainerSection,
    }
    section = sections.get(str(place[0]), TrainingSpec) if place else TrainingSpec
    return list(section.model_fields)
