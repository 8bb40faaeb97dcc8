"""The section `model`: which model is audited, on which device."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import typer
from pydantic import Field

from orchestrator.spec.spec_document import Section, absolute_if_exists, absolute_path
from transexplain.errors import ModelLoadError
from transexplain.local_paths import local_path
from transexplain.types.plans import DatasetRef

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel

ModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", help="directory, hub id, or timm:NAME?checkpoint=FILE"),
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="torch device, e.g. cuda:0, or spread: all cards; default: cpu"),
]


class ModelSection(Section):
    """Which model is audited."""

    shorthand: ClassVar[str] = "source"
    options: ClassVar[Mapping[str, str]] = {"model": "source", "device": "device"}

    source: str = Field(
        description="directory, hub id, or timm:NAME?checkpoint=FILE; of this machine or a URL"
    )
    dtype: Literal["float64", "float32", "bfloat16", "float16"] = Field(
        default="float32", description="of weights and activations"
    )
    device: str = Field(
        default="cpu",
        description="torch device of local runs, e.g. cuda:0; spread: blocks on all cards, for "
        "models too large for one",
    )

    def absolute(self) -> Self:
        """The section with an absolute path of its model; hub ids and the like as they are."""
        return self.model_copy(update={"source": absolute_model(self.source)})

    def load(self, dataset: DatasetRef, given: "LoadedModel | None" = None) -> "LoadedModel":
        """The model, or the one that is `given`; ModelLoadError where it reads other items."""
        from transexplain.models.load import load_model

        source = absolute_model(self.source)
        model = given or load_model(source, dtype=self.dtype, device=self.device)
        if model.modality != dataset.modality:
            raise ModelLoadError(
                f"model {self.source!r} reads {model.modality} but dataset "
                f"{dataset.source!r} holds {dataset.modality}"
            )
        return model


def require_local_model(source: str) -> None:
    """Raise ModelLoadError where a path leads nowhere; quick, since nothing heavy is imported."""
    if source.startswith((".", "/", "~")) and not local_path(source).exists():
        raise ModelLoadError.nowhere(source)


def absolute_model(source: str) -> str:
    """A local path that workers find from any folder; hub ids and the like as they are."""
    prefix, colon, rest = source.partition(":")
    if colon and prefix in ("lm", "towers"):
        folder, mark, answers = rest.partition("?")
        return f"{prefix}:{absolute_if_exists(folder)}{mark}{answers}"
    name, equals, checkpoint = source.partition("?checkpoint=")
    if equals:
        return f"{name}?checkpoint={absolute_path(checkpoint)}"
    return absolute_if_exists(source)
