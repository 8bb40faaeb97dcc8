"""Max-sensitivity: how much an explanation changes when its input changes very little."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from transexplain.errors import ConfigurationError
from transexplain.evaluating.metrics.metric_table import Bench, Case, Scored, unmeasured
from transexplain.types.items import Attribution, Item, ItemFailure

if TYPE_CHECKING:
    from torch import Tensor

    from transexplain.models.loaded_model import Encoded, LoadedModel

#: bytes of word embeddings with noise that are held at once; else they are made for every method
_HELD = 1 << 30
_NOTHING = "no position has any relevance"
_NO_WORDS = "the model has no word embedding that could be moved"


class _Noise(NamedTuple):
    samples: int
    radius: float
    seed: int

    def on(self, tensor: "Tensor", scale: float, name: str, sample: int) -> "Tensor":
        """`tensor` with uniform noise of at most `radius` x `scale`; the same on every device."""
        import torch

        from transexplain.methods.batch_explanation import generator_of

        generator = generator_of(self.seed, name, f"max-sensitivity {sample}")
        noise = torch.rand(tensor.shape, generator=generator).mul_(2).sub_(1)
        noise = noise.mul_(self.radius * scale).to(tensor.device)
        return (tensor.detach() + noise).to(tensor.dtype)


def max_sensitivity(
    bench: Bench, cases: Sequence[Case], *, samples: int = 5, radius: float = 0.02, seed: int = 0
) -> list[Scored]:
    """The largest change of an explanation R among inputs nearby, as a share of its norm.

    max ||R(x') - R(x)|| / ||R(x)|| over `samples` inputs x' (Yeh et al. 2019, Definition 2, over
    the norm so that methods of any scale compare), of the explained class, over own positions.
    Pictures: x' is the normalised input, each of its values moved by uniform noise of at most
    `radius` of their range; graphs: the same, of the features of all nodes. Texts cannot be moved a
    little, so their words are: every entry of the word embedding gets uniform noise of at most
    `radius` standard deviations of the table; a word has the same noise wherever it stands. Raises
    ConfigurationError for parameters out of range.
    """
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ConfigurationError(f"samples is a whole number of at least 1, not {samples!r}")
    if isinstance(radius, bool) or not isinstance(radius, int | float) or not radius > 0:
        raise ConfigurationError(f"radius is a number above 0, not {radius!r}")
    noise = _Noise(samples=samples, radius=radius, seed=seed)
    scores = [None if case.relevance.any() else unmeasured(_NOTHING) for case in cases]
    rows = [row for row, scored in enumerate(scores) if scored is None]
    some = [cases[row] for row in rows]
    again: list[list[Attribution | str]] = []
    if some and bench.model.modality == "text":
        again += (bench.again(some, model=model) for model in _moved_words(bench.model, noise))
    elif some:
        again += _nearby_values(bench, some, noise)
    for column, row in enumerate(rows):
        scores[row] = _scored(cases[row], [sample[column] for sample in again])
    return [scored for scored in scores if scored is not None]


def _scored(case: Case, again: Sequence[Attribution | str]) -> Scored:
    if not again:
        return unmeasured(_NO_WORDS)
    before = case.relevance
    changes = []
    for sample, explained in enumerate(again, 1):
        if isinstance(explained, str):
            return unmeasured(f"input {sample} nearby: {explained}")
        after = replace(case, attribution=explained).relevance
        changes.append(np.linalg.norm(after - before) / np.linalg.norm(before))
    return Scored(value=float(max(changes)))


def _moved_words(model: "LoadedModel", noise: _Noise) -> "Iterator[LoadedModel]":
    """A model for every sample, all of whose weights but one table are the audited model's."""
    from transexplain.models.variants import kept, variant, word_table

    name = word_table(model)
    if name is None:
        return
    table = model.module.get_parameter(name)
    scale = float(table.detach().float().std(correction=0))

    def made(sample: int) -> "LoadedModel":
        return variant(model, {name: noise.on(table, scale, name, sample)})

    samples = range(noise.samples)
    if noise.samples * table.nbytes <= _HELD:
        yield from kept(
            model, "max-sensitivity", noise, lambda: [made(sample) for sample in samples]
        )
    else:
        yield from map(made, samples)


def _nearby_values(
    bench: Bench, cases: Sequence[Case], noise: _Noise
) -> Iterator[list[Attribution | str]]:
    """For every sample the explanations of inputs whose values are a little elsewhere."""
    encoded = bench.model.encode([case.item for case in cases])
    main = bench.model.caller.main
    for sample in range(noise.samples):
        yield bench.again(
            cases, items=[_moved_values(entry, main, noise, sample) for entry in encoded]
        )


def _moved_values(encoded: "Encoded | ItemFailure", main: str, noise: _Noise, sample: int) -> Item:
    if isinstance(encoded, ItemFailure):  # a file that was deleted since it was explained
        return Item(id=encoded.item_id, index=encoded.index, content=None)
    values = encoded.inputs[main]
    moved = noise.on(values, float(values.max() - values.min()), encoded.item.id, sample)
    return replace(encoded.item, content={**encoded.inputs, main: moved})
