"""Devices that are not there, and models whose blocks lie on several cards.

No card is needed: the plan of the blocks is a matter of sizes, the hooks by which accelerate moves
tensors from block to block also work where all blocks lie on the CPU, and what a machine sees is
what torch says. That two real cards give these numbers is not tested here.
"""

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES
from architectures_measured import ready
from everyday import only
from tiny_models import bert, wordpiece
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoTokenizer

import transexplain as te
from transexplain.engine.operator_parts import AttentionPass, LinearValues
from transexplain.engine.steps import Steps
from transexplain.errors import ConfigurationError, ModelLoadError
from transexplain.evaluating.metrics.randomisation import randomised_model
from transexplain.methods.at_input_layer import steps_of
from transexplain.methods.global_maps import accumulated, mean_heads, rolled
from transexplain.methods.map_passes import MapMethod, Maps, _EagerPasses
from transexplain.models import huggingface
from transexplain.models.huggingface import card_map
from transexplain.models.loaded_model import LoadedModel
from workers import device_worker
from workers.device_worker import WorkerOptions
from workers.model_cache import ModelCache
from workers.supervisor import options_per_device

TEXTS = ["a nice film", "unbelievably good goods"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    module = bert(num_hidden_layers=3, initializer_range=0.5)
    with torch.no_grad():  # as in every trained model
        for name, one in module.named_parameters():
            if name.endswith("bias"):
                one.normal_(std=0.1)
    module.save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def two_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch says that it sees two cards of 1,000 bytes, half of them free."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (500, 1000))


# --- devices that are not there


@pytest.mark.usefixtures("two_cards")
def test_a_card_that_is_not_there_is_named_with_those_that_are(folder: Path) -> None:
    reported = r"'cuda:2' is not there: .* cuda:0, cuda:1;"
    with pytest.raises(ModelLoadError, match=reported):
        te.load_model(folder, device="cuda:2")
    with pytest.raises(ConfigurationError, match=rf"worker: .*{reported}"):
        device_worker._prepare_torch(WorkerOptions(device="cuda:2"))


@pytest.mark.usefixtures("two_cards")
@pytest.mark.parametrize(
    ("source", "error", "reported"),
    [
        ("folder", ModelLoadError, r"no room on the cards .*cuda:0.*cuda:1.*device='cpu'"),
        ("timm:test_vit?checkpoint=x.safetensors", ModelLoadError, "lies on one device"),
        ("without accelerate", ConfigurationError, r"\.\[large\]"),
        ("without cards", ModelLoadError, "torch sees none"),
    ],
)
def test_what_cannot_be_spread_is_refused(
    folder: Path,
    source: str,
    error: type[Exception],
    reported: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("accelerate")
    if source == "without accelerate":
        monkeypatch.setitem(sys.modules, "accelerate", None)
    elif source == "without cards":
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(error, match=reported):
        te.load_model(source if ":" in source else folder, device="spread")


@pytest.mark.parametrize("device", ["meta", "xpu:3", "mps:4", "hpu"])
def test_other_kinds_of_devices_are_looked_for_too(folder: Path, device: str) -> None:
    kind = device.partition(":")[0].upper()
    with pytest.raises(ModelLoadError, match=rf"'{device}' is not there: torch sees \d {kind}"):
        te.load_model(folder, device=device)


def test_one_process_takes_all_cards_or_each_its_own(
    two_cards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (whole,) = options_per_device("spread", WorkerOptions())
    assert (whole.device, whole.neighbours) == ("spread", 1)
    assert len(options_per_device("spread,cpu:2", WorkerOptions())) == 3
    with pytest.raises(ConfigurationError, match="spread is all CUDA devices, so no other process"):
        options_per_device("spread,cuda:0", WorkerOptions())
    properties = SimpleNamespace(total_memory=1000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert ModelCache("spread")._budget("spread") == 1000.0  # half of two
    assert ModelCache("cuda:1")._budget("cuda:1") == 500.0


# --- which block lies where


def size_of(module: nn.Module) -> int:
    return sum(one.nbytes for one in (*module.parameters(), *module.buffers()))


def test_blocks_follow_each_other_and_cards_are_about_evenly_full() -> None:
    module = bert(num_hidden_layers=8)
    whole = size_of(module)
    places = card_map(module, {"cuda:0": 9 * whole, "cuda:1": 9 * whole, "cuda:2": whole}, "here")
    covers_once(places, module)
    assert [*places.values()] == sorted(places.values()), "in the order of the model"
    assert len([name for name in places if "layer." in name]) == 8
    filled = [
        sum(size_of(module.get_submodule(name)) for name, card in places.items() if card == one)
        for one in ("cuda:0", "cuda:1", "cuda:2")
    ]
    assert sum(filled) == whole
    assert max(filled) < 0.45 * whole, "an even share is a third"
    little = {"cuda:0": int(1.3 * size_of(module.bert.embeddings)), "cuda:1": 10**9}
    places = card_map(module, little, "here")
    assert [name for name, card in places.items() if card == "cuda:0"] == ["bert.embeddings"]
    with pytest.raises(ModelLoadError, match="does not say where a Sequential may be cut"):
        card_map(nn.Sequential(nn.Linear(4, 4)), {"cuda:0": 10**6}, "here")


def covers_once(found: dict[str, str], module: nn.Module) -> None:
    for name, _ in (*module.named_parameters(), *module.named_buffers()):
        assert sum(name.startswith(f"{part}.") for part in found) == 1, name


def test_a_module_with_tensors_beside_its_parts_is_not_cut() -> None:
    """It computes with both: two cards would not do."""
    module = bert()
    module.bert.pooler.scale = nn.Parameter(torch.ones(16))
    assert "bert.pooler" in card_map(module, {"cuda:0": 10**6, "cuda:1": 10**6}, "here")
    assert "bert.pooler.dense" in card_map(bert(), {"cuda:0": 10**6, "cuda:1": 10**6}, "here")


def test_the_number_type_counts_and_no_weights_are_needed() -> None:
    with torch.device("meta"):
        module = bert().to(torch.float64)
    room = {"cuda:0": size_of(bert()), "cuda:1": size_of(bert())}
    with pytest.raises(ModelLoadError, match="here: the weights of this BertForSequenceClass"):
        card_map(module, room, "here")
    assert card_map(module.to(torch.float32), room, "here")["bert.embeddings"] == "cuda:0"


def test_tied_weights_stay_together() -> None:
    module = bert()
    module.classifier = nn.Linear(16, 3)
    module.classifier.weight = module.bert.pooler.dense.weight  # of another shape, never called
    module.bert.encoder.layer[1].output.dense.bias = module.bert.embeddings.LayerNorm.bias
    found = card_map(module, {"cuda:0": 10**6, "cuda:1": 10**6}, "here")
    assert found["classifier"] == found["bert.pooler.dense"]
    assert found["bert.encoder.layer.1"] == found["bert.embeddings"] == "cuda:0"


# --- explanations


def same(found: LoadedModel, wanted: LoadedModel, method: str = "lrp") -> None:
    """Equal relevance and ledgers, which close."""
    for one, other in zip(
        te.explain(found, TEXTS, method=method, target="all"),
        te.explain(wanted, TEXTS, method=method, target="all"),
        strict=True,
    ):
        assert np.array_equal(one.relevance, other.relevance)
        assert one.ledger == other.ledger
        if one.ledger is not None:
            assert abs(one.ledger.gap) < 5e-6 * one.ledger.magnitude


def test_a_model_is_loaded_by_its_plan_of_blocks(
    folder: Path, two_cards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of transformers' way but for the places, which are the CPU for either card."""
    pytest.importorskip("accelerate")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10**6, 10**6))
    planned: list[dict[str, str]] = []

    def noted(*args: Any) -> dict[str, str]:
        planned.append(card_map(*args))
        return dict.fromkeys(planned[0], "cpu")

    monkeypatch.setattr(huggingface, "card_map", noted)
    spread = te.load_model(folder, device="spread")
    assert set(planned[0].values()) == {"cuda:0", "cuda:1"}
    assert spread.ref.device == "spread" and not spread.module.training
    plain = te.load_model(folder)
    assert spread.ref.digest == plain.ref.digest, "the same model for a plan"
    same(spread, plain)


@pytest.fixture
def hooked(folder: Path) -> LoadedModel:
    """A model whose blocks accelerate has put its hooks on."""
    accelerate = pytest.importorskip("accelerate")
    module = te.load_model(folder).module
    places = dict.fromkeys(card_map(module, {"cpu": 10**9}, "here"), "cpu")
    accelerate.dispatch_model(module, places, main_device="cpu", force_hooks=True)
    assert sum(hasattr(part, "_hf_hook") for part in module.modules()) > len(places)
    return te.load_model(module.eval(), AutoTokenizer.from_pretrained(folder))


COVERED = [name for name, one in ARCHITECTURES.items() if one.source == "transformers"]
METHODS = ["lrp", "attnlrp", "chefer-lrp", "gae", "integrated-gradients", "layer-gradcam", "lime"]


@pytest.mark.parametrize("method", only("lrp", "chefer-lrp", of=METHODS))
def test_hooks_between_blocks_change_no_number(
    folder: Path, hooked: LoadedModel, method: str
) -> None:
    same(hooked, te.load_model(folder), method)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COVERED[::12])
def test_hooks_change_no_number_of_any_architecture(name: str) -> None:
    """Of those that transformers says of where they may be cut; the others are refused."""
    accelerate = pytest.importorskip("accelerate")
    plain = ready(name)
    module = copy.deepcopy(plain.model.module)
    room = dict.fromkeys(("cuda:0", "cuda:1"), 2 * size_of(module))
    if not getattr(module, "_no_split_modules", None):
        with pytest.raises(ModelLoadError, match="does not say where"):
            card_map(module, room, name)
        return
    places = card_map(module, room, name)
    assert set(places.values()) == {"cuda:0", "cuda:1"}
    covers_once(places, module)
    moved = getattr(module, "_skip_keys_device_placement", None)
    on_cpu = dict.fromkeys(places, "cpu")
    accelerate.dispatch_model(module, on_cpu, main_device="cpu", force_hooks=True, skip_keys=moved)
    hooked = te.wrap(
        module, modality=plain.architecture.modality, input_size=plain.architecture.picture
    )
    for one, other in zip(
        te.explain(hooked, plain.items[:1]), te.explain(plain.model, plain.items[:1]), strict=True
    ):
        assert np.array_equal(one.relevance, other.relevance)


@pytest.mark.exhaustive
def test_a_model_with_these_hooks_stays_eager(folder: Path, hooked: LoadedModel) -> None:
    for model, ran in ((hooked, ("eager",)), (te.load_model(folder), ("eager", "replayed"))):
        model.steps["steps"] = Steps(earned={"cpu": 1e-9})
        for _ in range(3):
            te.explain(model, TEXTS[0])
        assert steps_of(model).ran() == ran


@pytest.mark.exhaustive
def test_a_randomised_copy_runs_with_its_own_weights(folder: Path, hooked: LoadedModel) -> None:
    """The hooks hold a module's forward: that of the copy, not that of the audited model."""
    plain = te.load_model(folder)
    same(randomised_model(hooked, 0, 0), randomised_model(plain, 0, 0))
    same(hooked, plain)


@pytest.fixture
def cards() -> Iterator[None]:
    """Tensors without numbers that may say they lie on cards; operators refuse those of two."""
    with FakeTensorMode():
        yield


def on(card: int, *shape: int) -> torch.Tensor:
    return torch.empty(*shape, dtype=torch.float64, device=f"cuda:{card}")


def test_maps_of_layers_on_two_cards_are_read_beside_the_logits(cards: None) -> None:
    logits, items, heads = on(0, 2, 3), 2, 4
    layers = [on(0, items, heads, 5, 5), on(1, items * heads, 5, 5)]

    def all_of_them(maps: Maps) -> list[torch.Tensor]:
        means = mean_heads(maps)
        found = [one.mean(dim=1) for one in maps.relevance]
        return [rolled(means, normalise=True), accumulated(means), accumulated(found)]

    method = MapMethod(key="test", layers=range, compute=all_of_them)
    passed = AttentionPass(logits, tuple(layers), LinearValues())
    passes: Any = SimpleNamespace(attention=layers, relevance_of=lambda *_, **__: layers)
    eager = _EagerPasses(passed, passes, method, on(0, 2, 5).bool())
    for found in eager.results(torch.ones(2, 3), True):
        assert found.device == logits.device
        assert found.shape == (items, 5, 5)


def test_weights_that_are_not_in_memory_are_refused(folder: Path, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    module = te.load_model(folder).module
    accelerate.disk_offload(module.bert.encoder, tmp_path / "disk", execution_device="cpu")
    with pytest.raises(ModelLoadError) as refused:
        te.load_model(module, tokenizer)
    told = "bert.encoder.layer.0.attention.self.query.weight of BertForSequenceClassification are"
    assert told in str(refused.value) and "device='spread'" in str(refused.value)
