"""One engine for many architectures: same logits, a closed ledger, batches change nothing."""

import csv
from collections.abc import Sequence

import numpy as np
import pytest
import support_table
import torch
from architectures import ARCHITECTURES
from architectures_measured import Ready, explained, ready
from everyday import only

from transexplain.engine.composites import COMPOSITES
from transexplain.models.loaded_model import Encoded
from transexplain.types.items import Attribution, Item

COVERED = list(ARCHITECTURES)
#: of every kind; the README's test command has them and a sixth of the others by `lrp`, and half
#: of them by every composite
TWELVE = (
    *("BERT", "DeBERTa-v2", "ModernBERT", "XLNet", "GPT-2", "Llama", "Mixtral", "T5"),
    *("ViT", "Swin", "timm ConvNeXt", "timm XCiT"),
)


EVERYDAY = sorted({*TWELVE, *sorted(COVERED)[::6]})
OTHERS = [method for method in COMPOSITES if method != "lrp"]


@pytest.mark.parametrize("name", only(*EVERYDAY, of=COVERED))
def test_architectures(name: str, subtests: pytest.Subtests) -> None:
    """All in one test, since it takes longer to build a model than to explain by it."""
    with subtests.test("explained by lrp"):
        (_check if name in TWELVE else _check_one_batch)(name, "lrp")
    if not ARCHITECTURES[name].beside:
        with subtests.test("the logits follow from the input layer alone"):
            _check_input_layer(name)
    place = COVERED.index(name)
    for step in range(1 if name in EVERYDAY else 2):  # other composites in turn
        method = OTHERS[(2 * place + step) % len(OTHERS)]
        with subtests.test(method=method):
            _check_one_batch(name, method)


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "ViT"])
def test_architectures_by_every_other_composite(name: str, subtests: pytest.Subtests) -> None:
    for method in OTHERS:
        with subtests.test(method=method):
            _check_one_batch(name, method)


def test_the_twelve_are_of_every_kind() -> None:
    assert set(TWELVE) <= set(COVERED)
    kinds = {(one.source, one.kind) for one in ARCHITECTURES.values()}
    assert {(ARCHITECTURES[name].source, ARCHITECTURES[name].kind) for name in TWELVE} == kinds


def _check(name: str, method: str) -> None:
    """Logits, ledgers and values of each item alone, and the same values in batches."""
    one = ready(name)
    alone = [explained(name, method, [item]) for item in one.items]
    for attributions, logits in zip(alone, one.logits, strict=True):
        _check_logits(one, attributions, logits)
        _check_relevance(one, attributions)
    # a model whose own logits depend on their neighbours is run apart, so this holds for every one
    pairs = [(0, 1), (0, 2)] if one.architecture.modality == "text" else [(0, 1)]
    for first, second in pairs:
        together = explained(name, method, [one.items[first], one.items[second]])
        _check_relevance(one, together)
        _check_equal(one, together, [*alone[first], *alone[second]])


def _check_one_batch(name: str, method: str) -> None:
    """As `_check`, with one batch of all items, and the last of them alone: the shortest text."""
    together = _explained_together(name, method)
    alone = explained(name, method, ready(name).items[-1:])
    _check_equal(ready(name), together[-len(alone) :], alone)


def _explained_together(name: str, method: str) -> Sequence[Attribution]:
    """All items in one batch, with the logits of each alone, and ledgers that close."""
    one = ready(name)
    together = explained(name, method, one.items)
    classes = len(together) // len(one.items)
    for place, logits in enumerate(one.logits):
        _check_logits(one, together[place * classes :][:classes], logits)
    _check_relevance(one, together)
    return together


def _check_logits(one: Ready, found: Sequence[Attribution], logits: np.ndarray) -> None:
    """The explained logits are those of the module called by hand."""
    rtol = 1e-6 if one.architecture.casts or one.architecture.single else 1e-12
    scale = float(np.abs(logits).max())
    given = [attribution.logit for attribution in found]
    np.testing.assert_allclose(given, logits, rtol=0, atol=rtol * scale)


def _check_relevance(one: Ready, found: Sequence[Attribution]) -> None:
    for attribution in found:
        assert np.isfinite(attribution.relevance).all()
        if attribution.ledger is not None:
            assert attribution.ledger.relative_gap <= one.architecture.tolerance
    # an input that nothing depends on would make every check above pass
    assert max(np.abs(attribution.relevance).max() for attribution in found) > 1e-9


def _check_equal(one: Ready, left: Sequence[Attribution], right: Sequence[Attribution]) -> None:
    rtol = 1e-3 if one.architecture.casts or one.architecture.single else 1e-9
    for together, alone in zip(left, right, strict=True):
        scale = float(np.abs(alone.relevance).max())
        np.testing.assert_allclose(
            together.relevance, alone.relevance, rtol=0, atol=rtol * max(scale, 1e-3)
        )


class _Exchange:
    """Taps that keep the input layer, or put another item's in its place."""

    def __init__(self, instead: torch.Tensor | None = None) -> None:
        self.seen = self.instead = instead

    def input_layer(self, tensor: torch.Tensor) -> torch.Tensor:
        self.seen = tensor.detach().clone()
        return tensor if self.instead is None else self.instead

    def encoder_begins(self) -> None:
        pass


def _check_input_layer(name: str) -> None:
    """The input layer of another item in its place gives the logits of that item."""
    one = ready(name)
    found = one.model.encode(
        [Item(id=str(index), index=index, content=item) for index, item in enumerate(one.items[:2])]
    )
    first, second = (one.model.collate([each]) for each in found if isinstance(each, Encoded))
    taps = _Exchange()
    with torch.no_grad():
        wanted = one.model.run(second, at=one.model.default_at, taps=taps)
        given = _Exchange(taps.seen)
        swapped = one.model.run(first, at=one.model.default_at, taps=given)
    assert not torch.equal(given.seen, taps.seen)
    tolerance = 1e-5 if one.architecture.single else 1e-6  # of casts to float32
    torch.testing.assert_close(swapped, wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))


def test_the_peer_was_measured_on_every_architecture() -> None:
    assert list(support_table.of_peer()) == list(ARCHITECTURES)
    with support_table.FILE.open(encoding="utf-8", newline="") as file:
        written = [row["autoLRP 0.2"] for row in csv.DictReader(file)]
    assert written == list(support_table.of_peer().values())


@pytest.mark.exhaustive  # measures every architecture once more
def test_the_docs_say_what_was_measured() -> None:
    assert support_table.in_docs() == support_table.measured_table(), (
        "docs/reference/architectures.csv is not what was measured; "
        "rewrite it with `python tests/support/support_table.py`"
    )
