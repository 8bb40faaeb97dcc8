"""Labelled examples of a dataset: encoded, split, and in batches that the seed decides."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Literal

import torch
from torch import Tensor

from transexplain.data.picture_places import open_picture
from transexplain.data.shard_reader import read_shard
from transexplain.errors import ConfigurationError, DataSourceError
from transexplain.extras.training.training_plans import digest_of
from transexplain.files.paths import any_path
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.randomness import keyed_number
from transexplain.types.dataset_labels import label_index, label_mapping, label_remedy
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import DatasetRef, Shard
from transexplain.types.targets import ClassNames

_CHUNK = 256  #: texts that are encoded together
_POOL = 16  #: batches whose examples are sorted by length together
#: bytes of encoded pictures that are kept; the others are read and encoded again for each batch
KEPT_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Example:
    """One item with its class."""

    item: Item  #: of a picture that is not kept: without its content
    label: int  #: class index
    length: int  #: positions
    encoded: Encoded | None  #: None: encoded again for each batch


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ExampleBatch:
    """Some training examples as the model takes them."""

    rows: tuple[int, ...]  #: of the training examples
    batch: Batch
    labels: Tensor  #: (B,) class indices, on the model's device


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Examples:
    """Examples of one dataset for one model."""

    model: LoadedModel
    root: str  #: folder that pictures are relative to
    entries: tuple[Example, ...]
    failures: tuple[ItemFailure, ...] = ()
    max_length: int | None = None

    def __len__(self) -> int:
        """Examples that can be used."""
        return len(self.entries)

    @property
    def digest(self) -> str:
        """Sha256 over ids and classes in order."""
        return digest_of([(entry.item.id, entry.label) for entry in self.entries])

    def steps(self, batch_size: int) -> int:
        """Batches of one epoch."""
        return -(-len(self.entries) // batch_size)

    def batch(self, rows: Sequence[int]) -> ExampleBatch:
        """The examples of `rows` as one batch on the model's device."""
        chosen = [self.entries[row] for row in rows]
        batch = self.model.collate([self._encoded(entry) for entry in chosen])
        labels = torch.tensor([entry.label for entry in chosen], device=batch.lengths.device)
        return ExampleBatch(rows=tuple(rows), batch=batch, labels=labels)

    def in_order(self, batch_size: int) -> Iterator[ExampleBatch]:
        """All examples once, in their order."""
        for start in range(0, len(self.entries), batch_size):
            yield self.batch(range(start, min(start + batch_size, len(self.entries))))

    def shuffled(self, batch_size: int, *, seed: int, epoch: int) -> list[tuple[int, ...]]:
        """Rows of the batches of one epoch: all rows once, similar lengths together.

        The order depends on the seed and the epoch alone, so a training goes on anywhere.
        """
        rng = random.Random(f"order {seed} {epoch}")
        rows = rng.sample(range(len(self.entries)), len(self.entries))
        pool = batch_size * _POOL
        batches: list[tuple[int, ...]] = []
        for start in range(0, len(rows), pool):
            near = sorted(rows[start : start + pool], key=lambda row: self.entries[row].length)
            batches += [tuple(near[i : i + batch_size]) for i in range(0, len(near), batch_size)]
        rng.shuffle(batches)
        return batches

    def split(self, share: float, seed: int) -> tuple["Examples", "Examples"]:
        """Training and validation part: the ids with the smallest hashes are held out.

        At least one is held out where `share` is above 0, and at least one is left.
        """
        count = min(max(round(share * len(self)), 1), len(self) - 1) if share else 0
        rank = partial(
            keyed_number, "validation", seed, bits=256, algorithm="sha256", separator=" "
        )
        ordered = sorted(self.entries, key=lambda entry: rank(entry.item.id))
        held = {entry.item.id for entry in ordered[:count]}
        kept = tuple(entry for entry in self.entries if entry.item.id not in held)
        out = tuple(entry for entry in self.entries if entry.item.id in held)
        return replace(self, entries=kept), replace(self, entries=out, failures=())

    def _encoded(self, example: Example) -> Encoded:
        if example.encoded is not None:
            return example.encoded
        item = replace(
            example.item, content=open_picture(any_path(self.root), str(example.item.source))
        )
        (encoded,) = self.model.encode([item], max_length=self.max_length)
        if isinstance(encoded, ItemFailure):
            raise DataSourceError(
                f"{example.item.source} could be read when the training began and cannot any more: "
                f"{encoded.message}"
            )
        return encoded


def read_examples(
    model: LoadedModel,
    ref: DatasetRef,
    *,
    labels: Mapping[str, str] | Literal["by-index"],
    max_length: int | None = None,
    kept_bytes: int = KEPT_BYTES,
) -> Examples:
    """Every item of a dataset that has a class and can be encoded.

    An item that cannot be read or encoded, or has no label, is a failure and costs only itself.

    Args:
        model: encodes the items.
        ref: snapshot of the dataset.
        labels: dataset label -> class, or `by-index`; without: the names of the classes.
        max_length: positions per text.
        kept_bytes: of encoded pictures; what is beyond is encoded for each batch.

    Raises ConfigurationError for labels that are no class, and where no item is left.
    """
    if ref.modality != model.modality:
        raise ConfigurationError(
            f"model {model.ref.source!r} reads {model.modality} but dataset {ref.source!r} "
            f"holds {ref.modality}"
        )
    names = ClassNames(model.classes)
    mapping = label_mapping(labels, model.classes, ref.label_names)
    entries: list[Example] = []
    failures: list[ItemFailure] = []
    unknown: Counter[str] = Counter()
    room = kept_bytes
    size = 1 if ref.modality == "image" else _CHUNK  # decoded pictures are large
    labelled = _labelled(ref, failures)
    while items := list(islice(labelled, size)):
        classes = [label_index(item.label, names, mapping) for item in items]
        unknown.update(
            str(item.label) for item, label in zip(items, classes, strict=True) if label is None
        )
        for encoded, label in zip(model.encode(items, max_length=max_length), classes, strict=True):
            if isinstance(encoded, ItemFailure):
                failures.append(encoded)
            elif label is not None:
                entries.append(_example(encoded, label, picture=size == 1, room=room))
                if size == 1 and entries[-1].encoded is not None:
                    room -= _bytes(encoded)
    _check(ref, model, unknown, mapping, entries, failures)
    return Examples(
        model=model,
        root=ref.root,
        entries=tuple(entries),
        failures=tuple(failures),
        max_length=max_length,
    )


def _labelled(ref: DatasetRef, failures: list[ItemFailure]) -> Iterator[Item]:
    for item in read_shard(ref, Shard(index=0, start=0, stop=ref.rows)):
        if isinstance(item, ItemFailure):
            failures.append(item)
        elif item.label is None:
            text = "the item has no label"
            failures.append(
                ItemFailure(item_id=item.id, index=item.index, kind="no-label", message=text)
            )
        else:
            yield item


def _example(encoded: Encoded, label: int, *, picture: bool, room: int) -> Example:
    item = replace(encoded.item, content=None) if picture else encoded.item
    keep = not picture or _bytes(encoded) <= room
    # the decoded picture is not needed beside its tensor
    held = replace(encoded, item=item) if keep else None
    return Example(item=item, label=label, length=encoded.length, encoded=held)


def _bytes(encoded: Encoded) -> int:
    return sum(tensor.nbytes for tensor in encoded.inputs.values())


def _check(
    ref: DatasetRef,
    model: LoadedModel,
    unknown: Mapping[str, int],
    mapping: Mapping[str, str],
    entries: Sequence[Example],
    failures: Sequence[ItemFailure],
) -> None:
    if unknown:
        shown = ", ".join(repr(label) for label in sorted(unknown)[:5])
        raise ConfigurationError(
            f"{sum(unknown.values())} items of {ref.source!r} have labels that are no class "
            f"({shown}); the classes are {', '.join(model.classes[:10])}. "
            f"{label_remedy(unknown, model.classes, ref.label_names, mapping)}; or give the model "
            "new classes with `classes: [...]`"
        )
    if not entries:
        why = f"; the first: {failures[0].message}" if failures else ""
        raise ConfigurationError(f"no item of {ref.source!r} can be trained on{why}")
