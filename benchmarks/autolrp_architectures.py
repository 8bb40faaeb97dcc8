"""What autoLRP does on every architecture of the support table: runs, conserves, batches.

    pip install autolrp
    python -m benchmarks.autolrp_architectures [NAME ...]

Each is the tiny random model of the table in float64, wrapped by autoLRP at the input layer where
`lrp` is measured, with autoLRP's rules for constant attention weights (CP-LRP), which are those of
`lrp`. Biases and running means are 0 here, because autoLRP keeps no account of what constants take.
What other constants take (positions of a decoder, class tokens) is known from the ledger of `lrp`.

- runs: finite relevance that is not all 0, and the logits of the model.
- conserves: relevance of an item sums to what was seeded less what constants take by the ledger,
  to 1e-5 of the sum of |relevance|; unknown where it does not and constants take a part.
- batches: two items of one length in one pass have the relevance that each has alone.

Without names it writes `docs/reference/architectures_autolrp.csv`, from which
`tests/support/support_table.py` takes the column.
"""

import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT / "tests" / "support")]

from architectures import ARCHITECTURES  # noqa: E402
from architectures_measured import ready  # noqa: E402

import transexplain as te  # noqa: E402
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel  # noqa: E402
from transexplain.types.items import Item  # noqa: E402

FILE = _ROOT / "docs" / "reference" / "architectures_autolrp.csv"
#: relative to the largest |relevance| of an item
_SAME = 1e-5
#: constants with a smaller share are rounding
_NONE = 1e-6
Wrap = Callable[[Tensor], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What was found for one architecture."""

    architecture: str
    runs: str = "no"
    conserves: str = "no"
    batches: str = "no"
    gap: str = ""  #: |sum of relevance - expected| / sum of |relevance|, the larger of two items
    constants: str = ""  #: share of constants that are no biases, by the ledger of `lrp`
    why: str = ""  #: why it does not run, or fails in a batch


@dataclass(frozen=True, slots=True)
class Found:
    """Relevance (B, ...) of the seeded logits, and the logits (B, C)."""

    relevance: Tensor
    logits: Tensor


class _Taps:
    """Puts autoLRP's tensor at the input layer."""

    def __init__(self, wrap: Wrap) -> None:
        self.wrap = wrap
        self.tensor: Any = None

    def input_layer(self, tensor: Tensor) -> Tensor:
        self.tensor = self.wrap(tensor.detach())
        wrapped: Tensor = self.tensor
        return wrapped

    def encoder_begins(self) -> None:
        """Nothing to note."""


def by_autolrp(model: LoadedModel, batch: Batch, classes: Sequence[int]) -> Found:
    """autoLRP's relevance of one logit of each item, in one pass."""
    import autolrp

    taps = _Taps(autolrp.tensor)
    with torch.enable_grad():
        logits = model.run(batch, at=model.default_at, taps=taps)
        plain = logits.detach().as_subclass(Tensor)
        chosen = torch.nn.functional.one_hot(torch.tensor(classes), logits.shape[1])
        # every term is positive, so that the shares of the items have no cancellation
        seeded: Any = (logits * (chosen * plain.sign())).sum()
        seeded.lrp(config=autolrp.LRPConfig(rule={**autolrp.BASE, **autolrp.CPLRP}))
    if taps.tensor is None or taps.tensor.relevance is None:
        raise RuntimeError("no relevance reached the input layer")
    relevance = taps.tensor.relevance.detach().as_subclass(Tensor).double()
    # it seeds 1, of which each item gets the share of its logit in the sum
    own = plain.double().abs().gather(1, torch.tensor(classes)[:, None])
    shares = own / own.sum()
    axis = [len(classes), *[1] * (relevance.dim() - 1)]
    return Found(relevance / shares.view(axis), plain)


def batches_of(model: LoadedModel, contents: Sequence[Any]) -> tuple[list[Batch], Batch]:
    """The batch of each item alone, and that of all."""
    items = [Item(id=str(at), index=at, content=one) for at, one in enumerate(contents)]
    encoded = [one for one in model.encode(items) if isinstance(one, Encoded)]
    return [model.collate([one]) for one in encoded], model.collate(encoded)


def measured(name: str) -> Row:
    """Run autoLRP on one architecture."""
    ready.cache_clear()  # the model's biases are set to 0
    try:
        return _measured(name)
    finally:
        ready.cache_clear()


def _measured(name: str) -> Row:
    try:
        model, contents = ready(name).model, ready(name).items[:2]
        without_biases(model.module)
        alone, together = batches_of(model, contents)
        with torch.no_grad():
            plain = [model.caller(model.module, one.inputs) for one in alone]
        classes = [int(one.abs().argmax()) for one in plain]
        if not all(bool(one.any()) for one in plain):
            return Row(architecture=name, why="without biases all its logits are 0")
        found = [by_autolrp(model, one, [c]) for one, c in zip(alone, classes, strict=True)]
    except Exception as error:  # noqa: BLE001 - a peer may fail in any way, and that is the finding
        return Row(architecture=name, why=said(error))
    if not all(map(_is_relevance, found, plain)):
        return Row(architecture=name, why="relevance is 0 or not finite, or logits differ")
    shares = constants(model, contents, classes)
    gap = max(gap_of(one, 1 - share) for one, share in zip(found, shares, strict=True))
    taken = max(map(abs, shares))
    same, why = in_batch(model, together, classes, found)
    return Row(
        architecture=name,
        runs="yes",
        conserves="yes" if gap <= _SAME else "no" if taken < _NONE else "unknown",
        batches="yes" if same else "no",
        gap=f"{gap:.0e}",
        constants="" if taken < _NONE else f"{taken:.0e}",
        why=why,
    )


def without_biases(module: torch.nn.Module) -> None:
    """Set all biases and running means to 0."""
    with torch.no_grad():
        for name, one in (*module.named_parameters(), *module.named_buffers()):
            if name.rpartition(".")[2].startswith(("bias", "running_mean")):
                one.zero_()


def _is_relevance(found: Found, plain: Tensor) -> bool:
    close = torch.allclose(found.logits, plain, rtol=1e-5, atol=1e-6)
    return close and bool(found.relevance.isfinite().all()) and bool(found.relevance.any())


def gap_of(found: Found, expected: float) -> float:
    """|sum of relevance - expected| relative to the sum of |relevance|."""
    return abs(float(found.relevance.sum()) - expected) / float(found.relevance.abs().sum())


def constants(model: LoadedModel, contents: Sequence[Any], classes: Sequence[int]) -> list[float]:
    """The share of each logit that constants of the model take under `lrp`, by its ledger."""
    shares = []
    for content, index in zip(contents, classes, strict=True):
        of_item = te.explain(model, [content], "lrp", target="all")
        (found,) = (one for one in of_item if one.class_index == index)
        assert found.ledger is not None
        shares.append((found.ledger.embeddings + found.ledger.biases) / found.logit)
    return shares


def in_batch(
    model: LoadedModel, batch: Batch, classes: Sequence[int], alone: Sequence[Found]
) -> tuple[bool, str]:
    """Whether items together have the relevance that they have alone, or why they cannot."""
    try:
        found = by_autolrp(model, batch, classes).relevance
    except Exception as error:  # noqa: BLE001 - as above
        return False, said(error)
    if len(found) != len(alone):
        return False, "the first axis of the input layer is not that of the items"
    for one, other in zip(found, alone, strict=True):
        own = other.relevance.reshape(one.shape) if one.numel() == other.relevance.numel() else None
        if own is None or float((one - own).abs().max()) > _SAME * float(own.abs().max()):
            return False, "relevance of an item depends on the batch"
    return True, ""


def said(error: Exception) -> str:
    """The kind of an error and the first line of what it says."""
    first = str(error).strip().split("\n", maxsplit=1)[0]
    return f"{type(error).__name__}: {first[:120]}"


def main(names: Sequence[str]) -> None:
    """Measure, print, and without names write the file."""
    rows = []
    for name in names or ARCHITECTURES:
        rows.append(measured(name))
        print(*astuple(rows[-1]), sep=" | ", flush=True)
    if names:
        return
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([one.name for one in fields(Row)])
        writer.writerows(astuple(row) for row in rows)


if __name__ == "__main__":
    main(sys.argv[1:])
