"""`examine`: one item, everything that was met, and a verdict that can be bad."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from architectures import ARCHITECTURES
from architectures_record import build
from tiny_models import bert, hooks_of, text_items, vit, wordpiece
from torch import Tensor, nn

import transexplain as te
from transexplain.doctor import examine
from transexplain.engine.composites import COMPOSITES
from transexplain.errors import ConfigurationError, ItemError
from transexplain.models.loaded_model import LoadedModel

IDS = {"input_ids": torch.tensor([2, 5, 6, 7, 8, 9, 10, 3])}


class Toy(nn.Module):
    """Embedding, two linear blocks, one line that tests replace, and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(40, 12)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(12, 12), nn.Sequential(nn.Linear(12, 12))) for _ in range(2)
        )
        self.head = nn.Linear(12, 3)
        self.double()

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.odd(x).mean(1))

    def odd(self, x: Tensor) -> Tensor:
        return x


def toy(odd: Callable[[Tensor], Tensor]) -> Toy:
    """The network with this line in the place of its odd one."""
    module = Toy()
    module.odd = odd
    return module


def fails(x: Tensor) -> Tensor:
    raise RuntimeError("no kernel")


def routes(x: Tensor) -> Tensor:
    chosen = (x.sum(-1) > 0).nonzero()[:, 0]
    return x * (1.0 + chosen.numel())


def two_unknown(x: Tensor) -> Tensor:
    return torch.lgamma(x.abs() + 1.0) + torch.cumprod(x, -1)


def wrapped(module: nn.Module) -> LoadedModel:
    return te.wrap(module, modality="text", classes=("a", "b", "c"))


def tiny_bert(dtype: torch.dtype = torch.float64) -> LoadedModel:
    return te.wrap(bert().to(dtype), modality="text", tokenizer=wordpiece())


@pytest.mark.parametrize("method", COMPOSITES)
def test_a_covered_model(method: str) -> None:
    found = examine(tiny_bert(), "a nice film", method)
    assert found.verdict == "covered"
    counts: dict[str, int] = {}
    for use in found.operators:
        counts[use.name] = counts.get(use.name, 0) + use.count
    assert counts["linear"] == 14, "six in each of two layers, pooler and classifier"
    assert (counts["layer_norm"], found.positions) == (4, 5)
    assert found.logits_difference < 1e-12 == found.gap_tolerance and found.closes
    for entry in ("embeddings", "biases", "rules"):
        booked = sum(getattr(use, entry) for use in found.operators)
        assert booked == pytest.approx(getattr(found.ledger, entry), abs=1e-12)
    assert found.timing.ratio == found.timing.explanation / found.timing.forward > 0
    assert found.timing.peak_bytes is None, "not measured on CPU"
    assert found.batching == "similar lengths, padded"


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_bert()
    module = model.module.train()
    module.bert.embeddings.eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    modes = [part.training for part in module.modules()]
    state = torch.get_rng_state()
    examine(model)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert [part.training for part in module.modules()] == modes
    assert all(p.requires_grad and p.grad is None for p in module.parameters())
    assert hooks_of(module) == 0
    assert torch.equal(state, torch.get_rng_state())


def test_everything_uncovered_is_listed_with_its_place() -> None:
    found = examine(wrapped(toy(two_unknown)), IDS)
    assert found.verdict == "not covered: lgamma, cumprod"
    for one in found.uncovered:
        assert one.where.startswith("test_doctor.py:")
        assert one.where.endswith("in two_unknown (Toy)")
    assert found.ledger is None is found.timing
    assert found.logits_difference == 0, "the pass goes on to the end"
    rules = {use.rule for use in found.operators if use.name == "cumprod"}
    assert rules == {"none: plain gradient"} and found.document()["closes"] is False


@pytest.mark.parametrize(
    ("module", "verdict"),
    [
        (Toy(), "covered"),
        (toy(lambda x: x + x.detach()), "ledger does not close"),
        (toy(lambda x: x.detach()), "not covered: the pass as a whole"),
    ],
)
def test_a_ledger_that_does_not_close_is_reported(module: Toy, verdict: str) -> None:
    found = examine(wrapped(module), IDS)
    assert found.verdict == verdict
    for one in found.uncovered:
        assert "detaches its path" in one.why


def test_logits_that_are_not_the_models_are_reported() -> None:
    torch.manual_seed(0)
    random = toy(lambda x: x + torch.randn(12, dtype=x.dtype))
    assert examine(wrapped(random), IDS).verdict.startswith("logits differ")


def test_a_model_is_judged_by_its_number_type() -> None:
    half = examine(tiny_bert(torch.bfloat16))
    assert half.ledger is not None
    assert (half.gap_tolerance, half.closes, half.verdict) == (None, None, "covered")
    casting = examine(te.wrap(build(ARCHITECTURES["Llama"]), modality="text"), IDS)
    assert (casting.gap_tolerance, casting.verdict) == (1e-5, "covered")
    assert examine(tiny_bert(torch.float32)).gap_tolerance == 5e-6


def test_a_model_that_reads_padding_is_batched_by_length() -> None:
    assert examine(wrapped(Toy()), IDS).batching == "equal lengths"


def test_pictures_without_a_transform() -> None:
    found = examine(te.wrap(vit().double(), modality="image"), at="pixels")
    assert (found.verdict, found.at, found.batching) == ("covered", "pixels", "any items together")
    assert {use.name for use in found.operators} >= {"conv2d", "cat"}


@pytest.mark.parametrize(
    ("item", "options", "error", "words"),
    [
        (IDS, {"at": "pixels"}, ConfigurationError, "input layer 'pixels'"),
        (IDS, {"method": "lrq"}, ConfigurationError, "lrq"),
        (None, {}, ConfigurationError, "without a tokenizer"),
        ("a film", {}, ItemError, "without a tokenizer"),
        ({"input_ids": torch.tensor([99])}, {}, ItemError, "knows 0"),
    ],
)
def test_bad_requests(item: Any, options: dict[str, Any], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        examine(wrapped(Toy()), item, **options)
    with pytest.raises(ItemError, match="model itself fails"):
        examine(wrapped(toy(fails)), IDS)


def test_items_come_as_items_too_and_the_document_is_json() -> None:
    (item,) = text_items("a nice film")
    found = examine(tiny_bert(), item)
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert (document["verdict"], document["model"]["dtype"]) == ("covered", "float64")
    assert len(document["operators"]) == len(found.operators)
    assert document["invariance"]["padding"] is True


def test_a_trace_is_tried_on_request() -> None:
    assert examine(tiny_bert(), "a nice film").tracing is None
    found = examine(tiny_bert(), "a nice film", trace=True)
    assert found.verdict == "covered"
    assert found.tracing.operators > 100 and found.tracing.replay
    assert json.loads(json.dumps(found.document()))["tracing"]["why"] == ""
    refused = examine(wrapped(toy(routes)), IDS, trace=True).tracing
    assert refused is not None and refused.operators is None
    assert "depends on numbers" in refused.why
