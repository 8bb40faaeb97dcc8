"""The sections `data` and `model`: the items, their columns and near-duplicates, and the model."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import typer
from pydantic import AfterValidator, BeforeValidator, Field

from orchestrator.spec.spec_document import SpecSection, absolute_if_exists, absolute_path
from transexplain.data import SOURCES
from transexplain.data.file_formats import checked_delimiter, checked_encoding
from transexplain.errors import DataSourceError, ModelLoadError, SpecError
from transexplain.files.paths import local_path
from transexplain.settings import Settings
from transexplain.types.plans import DatasetRef, DatasetSpec, Duplicates, Snapshot

if TYPE_CHECKING:
    from transexplain.models.loaded_model import LoadedModel


DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        "-d",
        help="csv|tsv|jsonl|parquet|xlsx|tar file or glob, imagefolder:DIR, graphs:DIR or "
        "eraser:DIR#split",
    ),
]
TextOption = Annotated[
    str | None,
    typer.Option("--text", help="column of the text; default: `text`, else `sentence`"),
]
LabelOption = Annotated[
    str | None, typer.Option("--label", help="column of the label; default: `label`")
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="read only this many rows")]
#: items that `evaluate` samples unless the specification or an option gives a number
EVALUATED_ITEMS = 200
#: YAML 1.1 reads `off` as false
_OffIsFalse = BeforeValidator(lambda value: "off" if value is False else value)


class DataSection(SpecSection):
    """The items, and the meaning of their columns."""

    shorthand: ClassVar[str] = "source"
    options: ClassVar[Mapping[str, str]] = {
        "data": "source",
        "items": "sample",
        **{name: name for name in ("text", "label", "limit")},
    }

    source: str = Field(
        description="csv|tsv|jsonl|parquet|xlsx|tar file or glob, imagefolder:DIR, graphs:DIR or "
        "eraser:DIR#split; of this machine, or at s3://, gs://, az:// or hf://"
    )
    text: str | tuple[str, str] | None = Field(
        default=None,
        description="column of the text, or the columns of both texts of a pair: [premise, "
        "hypothesis]; default: text, else sentence",
    )
    image: str | None = Field(
        default=None,
        description="column of the path of a picture, in Parquet also of its bytes; of tars the "
        "picture's suffix, needed where an item has several",
    )
    label: str | None = Field(default=None, description="column of the label; default: label")
    id: str | None = Field(
        default=None, description="column of the item's id; default: its place in the data"
    )
    meta: tuple[str, ...] = Field(
        default=(), description="columns that are kept with each item, for slices and exports"
    )
    evidence: str | None = Field(
        default=None,
        description="column of what people marked: [[start, end], ...] characters of a text; "
        "[[left, top, right, bottom], ...] shares of a picture, or the path of its mask",
    )
    spans: str | None = Field(
        default=None,
        description="column of entities that are marked: [[start, end, group, entity], ...] in "
        "characters of a text; [[left, top, right, bottom, group, entity], ...] in shares of a "
        "picture, or [path of its mask, group, entity]; the entity may be left out; of graphs the "
        "name of what holds substructures: node_groups",
    )
    cluster: str | None = Field(
        default=None,
        description="column of what makes items alike: their author, thread or source; the "
        "statistics then count clusters and not items",
    )
    template: str | None = Field(
        default=None,
        description="column that names the template or minimal pair that a text belongs to",
    )
    duplicates: Annotated[Duplicates, _OffIsFalse] = Field(
        default="auto",
        description="auto: texts that are nearly the same are one cluster, looked for where no "
        "data.template is given; off: they are not looked for",
    )
    quoting: Literal["auto", "none", "rfc4180"] = Field(
        default="auto", description="of cells in csv and tsv files; none: a quote is a character"
    )
    encoding: Annotated[str, AfterValidator(checked_encoding)] | None = Field(
        default=None,
        description="of text files, such as cp1252; default: UTF-8, or what is detected where a "
        "file is not",
    )
    delimiter: Annotated[str, AfterValidator(checked_delimiter)] | None = Field(
        default=None,
        description="between cells: a character, or tab, comma, semicolon, pipe; default: that of "
        "the suffix, or what is detected in the header line",
    )
    sheet: str | None = Field(default=None, description="of a workbook; default: the first")
    snapshot: Snapshot = Field(
        default="auto",
        description="copy: items are copied into a snapshot when the audit is planned; manifest: "
        "the files are listed, and workers read their rows from them; auto: copied up to 4 GiB of "
        "files",
    )
    limit: int | None = Field(default=None, ge=1, description="only the first rows")
    sample: int | None = Field(
        default=None,
        ge=1,
        description="draw this many rows at random, of the first `limit` where that is given",
    )
    seed: int = Field(default=0, description="seed of the random draw of `sample`")

    def absolute(self) -> Self:
        """The section with an absolute path of its files, whatever kind of source they are."""
        prefix, colon, location = self.source.partition(":")
        known = colon and prefix in SOURCES
        path = absolute_path(location if known else self.source)
        return self.model_copy(update={"source": f"{prefix}:{path}" if known else path})

    def planned(self, settings: Settings) -> DatasetRef:
        """The items, copied or listed; raises DataSourceError, also where there are none."""
        from transexplain.data.dataset_plan import plan_dataset

        dataset = plan_dataset(DatasetSpec(**self.model_dump()), settings.snapshot_dir)
        if not dataset.rows:
            raise DataSourceError(f"dataset {self.source!r} has no rows")
        return dataset

    def require_kept(self, key: str, column: str) -> None:
        """Raise SpecError where `key` names a column that `data.meta` does not keep."""
        if column not in self.meta:
            raise SpecError(
                f"{key} is {column!r}, which data.meta does not keep: add it there "
                f"(kept: {', '.join(self.meta) or 'none'})"
            )

    def with_sample_of(self, items: int | None) -> Self:
        """The section with a sample of `items` (None: as usual; 0: all), unless it gives a size."""
        if {"sample", "limit"} & self.model_fields_set or items == 0:
            return self
        return self.model_copy(update={"sample": EVALUATED_ITEMS if items is None else items})

    def cluster_warnings(self, dataset: DatasetRef) -> Iterator[str]:
        """Warnings about clusters and near-duplicates."""
        from transexplain.data.item_clusters import MOST
        from transexplain.data.shard_reader import clustering_of

        clustering = clustering_of(dataset)
        if self.cluster is not None and clustering["clusters"] == 1:
            yield (
                f"all rows are one cluster by data.cluster ({self.cluster!r}): no interval can be "
                "had, so no groups are compared"
            )
        if repeating := clustering.get("repeating"):
            clusters = f"{clustering['repeated']:,} cluster{'s' * (clustering['repeated'] > 1)}"
            yield (
                f"{repeating:,} items are near-duplicates of others: {clusters}, which the "
                "statistics count as one item each (data.duplicates: off counts every item)"
            )
        if repeating := clustering.get("template"):
            yield (
                f"{repeating:,} of {dataset.rows:,} texts nearly repeat one text, as texts made "
                "from a template do; they are not made a cluster. Name the template's column in "
                "data.template"
            )
        looked = dataset.modality == "text" and self.duplicates == "auto"
        if looked and self.template is None and dataset.rows > MOST:
            yield (
                f"near-duplicates were not looked for: the data have {dataset.rows:,} rows, more "
                f"than {MOST:,}. Name what items share in data.cluster"
            )
        if single := clustering.get("single"):
            word = "template has" if single == 1 else "templates have"
            of = f"{single:,} of {clustering['templates']:,}"
            yield f"{of} {word} one row only, which no pair is made of"


ModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", help="directory, hub id, or timm:NAME?checkpoint=FILE"),
]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="torch device, e.g. cuda:0, or spread: all cards; default: cpu"),
]


class ModelSection(SpecSection):
    """The audited model."""

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

    def load(self, dataset: DatasetRef, loaded: "LoadedModel | None" = None) -> "LoadedModel":
        """The model, or `loaded`; raises ModelLoadError where it reads other items."""
        from transexplain.models.load import load_model

        source = absolute_model(self.source)
        model = loaded or load_model(source, dtype=self.dtype, device=self.device)
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
