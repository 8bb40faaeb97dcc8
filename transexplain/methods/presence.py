"""The model as a function of which positions are present, and the values that replace absent
ones.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch import Tensor

from transexplain.errors import ConfigurationError, ItemError
from transexplain.methods.at_input_layer import (
    POSITIONS_AT_ONCE,
    as_array,
    is_double,
    logits_again,
    repeated,
)
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
    explain_targets,
    numbered,
    seed_of,
)
from transexplain.models.invariance import invariance_of
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.models.text_encoder import TextEncoder
from transexplain.types.items import PatchGrid, own_positions

#: a name, or the id of a token
Baseline = str | int

_TOKENS = ("mask", "unk", "pad")
_TEXT = ("auto", *_TOKENS, "remove")
_IMAGE = ("auto", "mean", "black", "blur")
_GRAPH = ("auto", "remove", "zero")


@dataclass(frozen=True, slots=True, eq=False)
class Absence:
    """One input of a batch with every feature absent."""

    name: str  #: of the input that positions are taken out of
    values: Tensor  #: like that input: (B, T), (B, 3, H, W) or (B, T, F)
    note: str  #: what a reader of the relevance has to know


def absence(model: LoadedModel, batch: Batch, baseline: Baseline) -> Absence:
    """The replacement that `baseline` stands for; raises ConfigurationError.

    Args:
        model: a text, image or graph model.
        batch: B items.
        baseline: texts: `mask`, `unk`, `pad`, a token id, `remove` (no attention) or `auto`, the
            first token of these that the tokenizer has. Pictures: `mean` (0 in the model's
            input) or `auto`, `black`, `blur`. Graphs: `remove` (the node is masked as padding is,
            with its rows and columns; what the others' inputs say stays as in the whole graph),
            `zero` (its features are 0) or `auto`, the first of these that the model can.
    """
    makers = {"text": _of_texts, "image": _of_pictures, "nodes": _of_graphs}
    return makers[model.modality](model, batch, baseline)


def _of_texts(model: LoadedModel, batch: Batch, baseline: Baseline) -> Absence:
    if baseline == "remove":
        if "attention_mask" not in batch.inputs:
            raise ConfigurationError(
                f"{model.ref.source} takes no attention_mask, so no token can be removed; use "
                "another baseline, e.g. the id of a token"
            )
        mask = batch.inputs["attention_mask"]
        return Absence("attention_mask", torch.zeros_like(mask), "absent tokens are not attended")
    number, spelled = _token(model, baseline)
    values = torch.full_like(batch.inputs["input_ids"], number)
    return Absence("input_ids", values, f"absent tokens are replaced by {spelled}")


def _token(model: LoadedModel, baseline: Baseline) -> tuple[int, str]:
    """The token that replaces absent ones, and its name."""
    encoder = model.encoder
    assert isinstance(encoder, TextEncoder)
    tokenizer = encoder.tokenizer
    if isinstance(baseline, int) and not isinstance(baseline, bool):
        if baseline < 0 or (encoder.vocabulary is not None and baseline >= encoder.vocabulary):
            raise ConfigurationError(
                f"baseline={baseline} is no token of {model.ref.source}; its ids are 0 to "
                f"{'...' if encoder.vocabulary is None else encoder.vocabulary - 1}"
            )
        return baseline, f"token {baseline}"
    if baseline not in _TEXT:
        raise _unknown(baseline, (*_TEXT, "the id of a token"), "texts")
    if tokenizer is None:
        raise ConfigurationError(
            f"baseline={baseline!r} needs a tokenizer, and {model.ref.source} has none; use "
            'baseline="remove" or baseline=<id of a token>'
        )
    for name in _TOKENS if baseline == "auto" else (str(baseline),):
        number = getattr(tokenizer, f"{name}_token_id", None)
        if number is not None:
            # some models end a text at its first padding token
            twice = name != "pad" and number == tokenizer.pad_token_id
            spelled = getattr(tokenizer, f"{name}_token")
            return int(number), f"{spelled}{', which is also its padding' if twice else ''}"
    wanted = "mask, unknown or padding" if baseline == "auto" else baseline
    raise ConfigurationError(
        f"the tokenizer of {model.ref.source} has no {wanted} token; use baseline="
        '"remove" or baseline=<id of a token>'
    )


def _of_pictures(model: LoadedModel, batch: Batch, baseline: Baseline) -> Absence:
    pixels = batch.inputs["pixel_values"]
    if baseline in ("auto", "mean"):
        note = "absent patches are 0 in the model's input"
        return Absence("pixel_values", torch.zeros_like(pixels), note)
    if baseline == "black":
        return Absence("pixel_values", black(model, pixels), "absent patches are black")
    if baseline == "blur":
        # of a patch's longer side: a blur of that width leaves nothing of its own
        grid = batch.encoded[0].features
        assert isinstance(grid, PatchGrid)
        sigma = max(grid.height / grid.rows, grid.width / grid.cols)
        note = f"absent patches are blurred by a Gaussian of {sigma:.3g} pixels"
        blurred = gaussian_filter(
            pixels.detach().double().cpu().numpy(),
            sigma=(0, 0, sigma, sigma),
            mode="nearest",
            truncate=3.0,
        )
        return Absence("pixel_values", torch.from_numpy(np.asarray(blurred)).to(pixels), note)
    raise _unknown(baseline, _IMAGE, "pictures")


def _of_graphs(model: LoadedModel, batch: Batch, baseline: Baseline) -> Absence:
    if baseline not in _GRAPH:
        raise _unknown(baseline, _GRAPH, "graphs")
    obstacle = _no_removal(model, batch) if baseline in ("auto", "remove") else None
    if baseline == "remove" and obstacle is not None:
        raise ConfigurationError(
            f'{model.ref.source} {obstacle}, so no node can be removed; use baseline="zero"'
        )
    if baseline == "zero" or obstacle is not None:
        main = model.caller.main
        features = torch.zeros_like(batch.inputs[main])
        return Absence(main, features, "the features of absent nodes are 0")
    mask = torch.zeros_like(batch.inputs["attention_mask"])
    return Absence("attention_mask", mask, "absent nodes are removed")


def _no_removal(model: LoadedModel, batch: Batch) -> str | None:
    """Why masking a node does not remove it; None: it does."""
    if "attention_mask" not in batch.inputs:
        return "takes no attention_mask"
    largest = max(batch.encoded, key=lambda encoded: encoded.length)
    invariance = invariance_of(model, largest, ragged=True)
    if invariance.padding is False:
        return f"gives other logits beside masked nodes (by {invariance.padding_difference:.1g})"
    return None


def black(model: LoadedModel, pixels: Tensor) -> Tensor:
    """What a black picture is in the model's input, (B, 3, H, W) like `pixels`.

    Raises ConfigurationError for a model without a transform.
    """
    transform = getattr(model.encoder, "transform", None)
    if transform is None:
        raise ConfigurationError(
            f"baseline='black' needs a transform, and {model.ref.source} has none: what is black "
            "in its input is unknown; use baseline='mean' or 'blur'"
        )
    height, width = pixels.shape[-2:]
    picture: Tensor = transform(Image.new("RGB", (width, height)))
    return picture.to(pixels).expand_as(pixels)


def _unknown(baseline: Any, known: tuple[str, ...], kind: str) -> ConfigurationError:
    return ConfigurationError(
        f"unknown baseline {baseline!r}; the baselines of {kind} are: {', '.join(known)}"
    )


#: what is present or absent as one: `tokens` means patches of a picture and nodes of a graph;
#: `pixels` are a picture's alone
Over = Literal["tokens", "words", "pixels"]
Masks = NDArray[np.bool_]
_OVER = {"text": ("tokens", "words"), "image": ("tokens", "pixels"), "nodes": ("tokens",)}
_HAVE = {
    "text": "a text has tokens or words",
    "image": "an image has tokens: its patches, or pixels",
    "nodes": "a graph has tokens: its nodes",
}

#: logits that are held at once: 32 MiB of them
ANSWERS_AT_ONCE = 2**22


@dataclass(frozen=True, slots=True, eq=False)
class Presence:
    """Logits of the items of a batch where only some of their features are present.

    An item has F features: its tokens, words, patches, pixels or nodes, never its special
    positions, which are always there. `shape` of a picture's features is (rows, cols), of pixels
    (height, width).
    """

    model: LoadedModel
    batch: Batch
    logits: Array  #: (B, K) with everything present
    #: (K,) the logits that are wanted; at P positions class c of position p is number p * C + c
    classes: Sequence[int]
    absent: Absence
    #: per item (T,) the feature that a position belongs to, -1 where it is always there; over
    #: pixels (F,) they themselves
    owners: tuple[NDArray[np.int64], ...]
    beat: Callable[[], None] | None = None  #: called before every pass; it may raise
    over: Over = "tokens"

    @classmethod
    def of(
        cls,
        model: LoadedModel,
        batch: Batch,
        logits: Array,
        classes: Sequence[int],
        *,
        baseline: Baseline = "auto",
        over: Over = "tokens",
        beat: Callable[[], None] | None = None,
    ) -> "Presence":
        """The model on `batch`, given its `logits`; raises ConfigurationError."""
        if over not in _OVER[model.modality]:
            raise ConfigurationError(f"over={over!r} is unknown; {_HAVE[model.modality]}")
        return cls(
            model,
            batch,
            numbered(logits, classes),
            classes,
            absence(model, batch, baseline),
            tuple(owners_of(encoded, over) for encoded in batch.encoded),
            beat,
            over,
        )

    @property
    def features(self) -> list[int]:
        """F of every item."""
        return [int(owner.max(initial=-1)) + 1 for owner in self.owners]

    def shape(self, row: int) -> tuple[int, ...]:
        """Return how the features of an item lie: (F,) or (rows, cols)."""
        grid = self.batch.encoded[row].features
        if isinstance(grid, PatchGrid):
            whole = self.over == "pixels"
            return (grid.height, grid.width) if whole else (grid.rows, grid.cols)
        return (self.features[row],)

    def groups(self, number: int) -> Iterator[range]:
        """Items to compute together where each has `number` masks: the answers fit in memory."""
        step = max(1, ANSWERS_AT_ONCE // max(1, number * len(self.classes)))
        items = len(self.batch.encoded)
        for begin in range(0, items, step):
            yield range(begin, min(begin + step, items))

    def logits_of(self, items: Sequence[int], masks: Sequence[Masks]) -> list[Array]:
        """The logits of `items` where the features in `masks` are present.

        Args:
            items: rows of the batch.
            masks: (N, F) for each of them; equal masks are computed once.

        Returns:
            (N, K) float64 for each item. Raises ItemError where a logit is not finite.
        """
        distinct = [np.unique(mask, axis=0, return_inverse=True) for mask in masks]
        whole = [unique.all(axis=1) for unique, _ in distinct]
        logits = [np.empty((len(unique), len(self.classes))) for unique, _ in distinct]
        for row, everything, answers in zip(items, whole, logits, strict=True):
            answers[everything] = self.logits[row]
        places = [
            (item, number)
            for item, everything in enumerate(whole)
            for number in np.flatnonzero(~everything)
        ]
        for chunk in self._chunks([items[item] for item, _ in places]):
            if self.beat is not None:
                self.beat()
            part = places[chunk]
            rows = [items[item] for item, _ in part]
            answers = self._logits(rows, [distinct[item][0][number] for item, number in part])
            for (one, number), answer in zip(part, answers, strict=True):
                logits[one][number] = answer
        return [
            answers[inverse.reshape(-1)]
            for answers, (_, inverse) in zip(logits, distinct, strict=True)
        ]

    def spread(self, row: int, weights: Array, width: int) -> Array:
        """(`width`,) relevance of positions from the weights (F,) of what they belong to.

        The pieces of a word share its weight equally, so that their sum is the word's.
        """
        positions = np.zeros(width)
        owner = self.owners[row]
        held = owner >= 0
        if held.any():
            pieces = np.bincount(owner[held], minlength=len(weights))
            positions[: len(owner)][held] = (weights / pieces)[owner[held]]
        return positions

    def _chunks(self, rows: Sequence[int]) -> Iterator[slice]:
        """Slices of `rows` that are few enough for one pass."""
        lengths = [self.batch.encoded[row].length for row in rows]
        alone = not invariance_of(self.model, self.batch.encoded[0], ragged=False).batch
        begin, longest = 0, 0
        for place, length in enumerate(lengths):
            longest = max(longest, length)
            if place > begin and (alone or (place + 1 - begin) * longest > POSITIONS_AT_ONCE):
                yield slice(begin, place)
                begin, longest = place, length
        if lengths:
            yield slice(begin, len(lengths))

    def _logits(self, rows: Sequence[int], masks: Sequence[Masks]) -> Array:
        """(N, K) of one forward pass with the features `masks` (F,) of the items `rows`."""
        where = torch.tensor(rows, device=self.batch.lengths.device)
        some = repeated(self.batch, where)
        given = some.inputs[self.absent.name]
        there = self._there(rows, masks, given.shape).to(given.device)
        swapped = torch.where(there, given, self.absent.values[where])
        inputs = {**some.inputs, self.absent.name: swapped}
        if self.model.modality == "text":  # without the padding that none of them needs
            longest = int(some.lengths.max())
            inputs = {name: values[:, :longest] for name, values in inputs.items()}
        logits = logits_again(self.model, dataclasses.replace(some, inputs=inputs))
        numbers = numbered(as_array(logits), self.classes)
        for row, answer in zip(rows, numbers, strict=True):
            if not np.isfinite(answer).all():
                raise ItemError(
                    "not-finite",
                    f"the model's logits are not finite for item "
                    f"{self.batch.encoded[row].item.id} where {self.absent.note}; choose another "
                    "baseline",
                )
        return numbers

    def _there(self, rows: Sequence[int], masks: Sequence[Masks], shape: torch.Size) -> Tensor:
        """(N, T), (N, T, 1) or (N, 1, H, W) what is present of an input of `shape`."""
        grid = self.batch.encoded[0].features
        if self.over == "pixels":
            return torch.from_numpy(np.stack(masks)).reshape(-1, 1, shape[-2], shape[-1])
        if isinstance(grid, PatchGrid):
            patches = torch.from_numpy(np.stack(masks)).reshape(-1, 1, grid.rows, grid.cols)
            down, across = cells(shape[-2], grid.rows), cells(shape[-1], grid.cols)
            return patches[:, :, down][:, :, :, across]
        there = np.ones(tuple(shape[:2]), dtype=bool)
        for line, row, mask in zip(there, rows, masks, strict=True):
            owner = self.owners[row]
            if self.model.modality == "nodes":
                owner = owner[owner >= 0]  # the model's inputs have no virtual nodes
            line[: len(owner)] = np.append(mask, True)[owner]  # -1: always present
        return torch.from_numpy(there).reshape(*there.shape, *[1] * (len(shape) - 2))


def cells(pixels: int, patches: int) -> Tensor:
    """(`pixels`,) the row or column of patches that each pixel is in; the last may be smaller."""
    side = -(-pixels // patches)
    places = torch.arange(pixels)
    whole = places // side
    return whole if whole[-1] == patches - 1 else places * patches // pixels


def owners_of(encoded: Encoded, over: Over) -> NDArray[np.int64]:
    """(T,) which feature a position belongs to, in reading order; -1: always there.

    Over pixels (F,) the pixels of the model's input, row by row: no position is theirs alone.
    """
    if over == "pixels" and isinstance(encoded.features, PatchGrid):
        return np.arange(encoded.features.height * encoded.features.width)
    owners = np.full(encoded.length, -1)
    content = own_positions(encoded.features, encoded.length)
    owners[content] = np.arange(int(content.sum()))
    if over == "words" and not isinstance(encoded.features, PatchGrid):
        tokens = [(place, encoded.features[place]) for place in np.flatnonzero(content).tolist()]
        # a token that belongs to no word is a word of its own
        names = [(-1, place) if token.word is None else (token.word, -1) for place, token in tokens]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        owners[content] = [numbers[name] for name in names]
    return owners


@dataclass(frozen=True, slots=True, eq=False)
class ItemEstimate:
    """What a method found for one item."""

    weights: Array  #: (F, K) of every feature for every logit that a target reads, see `Presence`
    nothing: Array | None = None  #: (K,) the logits with every feature absent, where they count
    note: str = ""


#: the model as a function of presence -> an Estimate for each of B items
Estimator = Callable[[Presence], Iterable[ItemEstimate]]


def explain_presence(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    estimator: Estimator,
    *,
    method: str,
    baseline: Baseline,
    over: Over,
) -> BatchExplanation:
    """Explain every target from one estimate over the logits: targets cost no forward pass.

    Args:
        model, batch, resolve, method: B items, and the name in the registry.
        estimator: linear in the logits that it is given.
        baseline: see `absence`.
        over: see `presence.Over`.

    Returns relevance in logits; 0 at special positions, which are never absent. Raises
    ConfigurationError over pixels: relevance is of positions.
    """
    if over == "pixels":
        raise ConfigurationError(
            f"over='pixels' is for curves of an evaluation; {method} explains tokens: the patches "
            "of a picture"
        )
    with torch.no_grad():
        logits = model.logits(batch)
    numbers = as_array(logits)
    targets = resolve(numbers)
    reads = np.zeros(numbers.shape[1:])  # which logits of an item some target reads
    for target in (target for of_item in targets for target in of_item):
        reads += np.abs(seed_of([target], (1, *reads.shape)))[0]
    read = np.flatnonzero(reads).tolist()
    presence = Presence.of(model, batch, numbers, read, baseline=baseline, over=over)
    take = partial(_of_seed, presence, list(estimator(presence)))
    mark = CommonFields(method=method, at="inputs", unit="logits", double=is_double(logits))
    return explain_targets(batch, numbers, lambda _logits: targets, take, mark)


def _of_seed(
    presence: Presence, estimates: Sequence[ItemEstimate], seed: Array, _last: bool
) -> SeedRelevance:
    width = max(encoded.length for encoded in presence.batch.encoded)
    coefficients = seed.reshape(len(seed), -1)[:, presence.classes]
    pairs = list(zip(estimates, coefficients, strict=True))
    positions = [
        presence.spread(row, sampled.weights @ wanted, width)
        for row, (sampled, wanted) in enumerate(pairs)
    ]
    notes = [_notes(presence.absent.note, sampled, wanted) for sampled, wanted in pairs]
    return SeedRelevance(np.stack(positions), notes=notes)


def _notes(absent: str, estimate: ItemEstimate, coefficients: Array) -> tuple[str, ...]:
    notes = [absent]
    if estimate.nothing is not None:
        base = float(estimate.nothing @ coefficients)
        notes.append(f"with every position absent the logit is {base:.6g}")
    return (*notes, estimate.note) if estimate.note else tuple(notes)
