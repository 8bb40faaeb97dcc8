"""What a verification is given, and the result of one of its checks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from transexplain.errors import ConfigurationError
from transexplain.methods.learned_facts import LEARNED
from transexplain.types.plans import DatasetRef, ModelRef
from transexplain.types.scores import MethodSpec

#: a note says what could not be checked, or is different and no fault; it fails nothing
Status = Literal["PASS", "FAIL", "NOTE"]
_SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One line of a verification."""

    name: str
    status: Status
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyRequest:
    """How thorough to be, and where things lie now.

    Raises ConfigurationError for a number of items or a tolerance that cannot be.
    """

    items: int = 20  #: explained again
    seed: int = 0  #: of their drawing
    #: largest difference of two explanations of one item, as a share of its largest |relevance|;
    #: None: what the number type is good for, see `again.TOLERANCES`
    tolerance: float | None = None
    model: str | None = None  #: in the place of the plan's source
    device: str | None = None  #: in the place of the plan's
    batch_tokens: int | None = None  #: in the place of the plan's
    data_root: Path | None = (
        None  #: folder of data files, lexicons, explainers, pictures that moved
    )
    snapshot_dir: Path | None = None  #: looked into where a snapshot is not where it was

    def __post_init__(self) -> None:
        """Refuse a wrong request before anything is read."""
        if self.items < 0:
            raise ConfigurationError(f"items={self.items} cannot be; 0 explains nothing again")
        if self.tolerance is not None and not self.tolerance >= 0:
            raise ConfigurationError(f"tolerance={self.tolerance} must be at least 0")
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise ConfigurationError(f"batch_tokens={self.batch_tokens} must be at least 1")

    def model_of(self, planned: ModelRef) -> ModelRef:
        """The model where it is to be read, on the device where it is to be run."""
        return replace(
            planned, source=self.model or planned.source, device=self.device or planned.device
        )

    def dataset_of(self, planned: DatasetRef) -> DatasetRef:
        """The dataset with its snapshot and its pictures where they are now."""
        folders = [folder for folder in (self.data_root, self.snapshot_dir) if folder is not None]
        places = [Path(planned.snapshot)]
        places += [folder / f"{planned.fingerprint}.parquet" for folder in folders]
        found = next((place for place in places if place.is_file()), places[0])
        root = planned.root
        if root and self.data_root is not None:
            root = str(self.data_root.absolute())
        return replace(planned, snapshot=str(found.absolute()), root=root)

    def file_of(self, planned: str) -> Path:
        """A data file or lexicon where it is now.

        Below `data_root` the most folders of its planned path that are there decide: of
        `/data/train/texts.csv` first `data/train/texts.csv`, then `train/texts.csv`, then
        `texts.csv`.
        """
        path = Path(planned)
        if self.data_root is None:
            return path
        parts = path.parts[1:] if path.anchor else path.parts
        if ".." in parts:  # what is before it is not the file's place
            parts = parts[len(parts) - parts[::-1].index("..") :]
        places = [self.data_root.joinpath(*parts[first:]) for first in range(len(parts))]
        return next((place for place in places if place.is_file()), self.data_root / path.name)

    def explainer_of(self, planned: str) -> Path:
        """An explainer where it is now: below `data_root`, else where it was."""
        moved = self.file_of(planned)
        return moved if moved.is_file() else Path(planned)

    def method_of(self, planned: MethodSpec) -> MethodSpec:
        """The method with its explainer where it is now."""
        place = planned.params.get("explainer") if planned.name == LEARNED else None
        if place is None:
            return planned
        return replace(
            planned, params={**planned.params, "explainer": str(self.explainer_of(place))}
        )


def judged(name: str, faults: Sequence[str], good: str, remedy: str = "") -> Check:
    """FAIL naming the first faults and how many there are, or PASS with `good`."""
    if not faults:
        return Check(name=name, status="PASS", text=good)
    more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    text = f"{'; '.join(faults[:_SHOWN])}{more}{f'. {remedy}' if remedy else ''}"
    return Check(name=name, status="FAIL", text=text)


def note(name: str, text: str) -> Check:
    """What could not be checked."""
    return Check(name=name, status="NOTE", text=text)


Checks = Iterator[Check]
