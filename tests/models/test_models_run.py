"""Running with taps: the input layer is replaced, the module is left as it was."""

import threading
from typing import Any

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from tiny_models import Recorder, bert, hooks_of, text_items, vit, wordpiece
from torch import nn

import transexplain as te
from transexplain.errors import ConfigurationError, EngineError, ModelLoadError
from transexplain.models.hidden_states import positions_of, read_states, readable_layers
from transexplain.models.input_layer import find_blocks
from transexplain.models.load import wrap
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel


def batch_of(model: LoadedModel, *texts: Any) -> Batch:
    return model.collate([one for one in model.encode(text_items(*texts)) if type(one) is Encoded])


@pytest.fixture
def model() -> LoadedModel:
    return wrap(bert(), modality="text", tokenizer=wordpiece())


@pytest.mark.parametrize(
    ("at", "events"),
    [("encoder", ["encoder_begins", "input_layer"]), ("words", ["input_layer", "encoder_begins"])],
)
def test_taps_are_called_in_the_order_of_the_forward_pass(
    model: LoadedModel, at: str, events: list[str]
) -> None:
    batch, taps = batch_of(model, "good", "a nice film"), Recorder()
    with torch.no_grad():
        logits = model.run(batch, at=at, taps=taps)
        plain = model.module(**batch.inputs).logits
    assert taps.events == events
    assert taps.tensor.shape == (2, 5, 16)
    assert torch.equal(logits, plain)


def test_the_input_layer_of_bert_is_the_output_of_its_embeddings(model: LoadedModel) -> None:
    batch, taps = batch_of(model, "a nice film"), Recorder()
    ids = batch.inputs["input_ids"]
    with torch.no_grad():
        model.run(batch, at="encoder", taps=taps)
        assert taps.tensor is not None
        assert torch.equal(taps.tensor, model.module.bert.embeddings(input_ids=ids))  # type: ignore[union-attr,operator]
        model.run(batch, at="words", taps=taps)
        assert torch.equal(taps.tensor, model.module.get_input_embeddings()(ids))  # type: ignore[operator]


def test_the_input_layer_of_pixels_is_the_input_itself() -> None:
    model = wrap(vit(), modality="image")
    picture = torch.randn(3, 24, 24)
    batch = batch_of(model, {"pixel_values": picture})
    taps = Recorder(lambda tensor: tensor * 0)
    with torch.no_grad():
        logits = model.run(batch, at="pixels", taps=taps)
        assert torch.equal(logits, model.module(torch.zeros(1, 3, 24, 24)).logits)
    assert taps.events == ["input_layer", "encoder_begins"]
    assert torch.equal(taps.tensor[0], picture)
    assert torch.equal(batch.inputs["pixel_values"][0], picture)


def test_the_module_is_left_as_it_was() -> None:
    module = bert()
    module.train()
    module.bert.encoder.layer[1].eval()
    module.classifier.weight.requires_grad_(False)
    modes = [part.training for part in module.modules()]
    wants = [parameter.requires_grad for parameter in module.parameters()]
    before = {name: value.clone() for name, value in module.state_dict().items()}
    random = torch.get_rng_state()
    model = wrap(module, modality="text", tokenizer=wordpiece())
    batch = batch_of(model, "a nice film")
    with torch.no_grad():
        first = model.run(batch, at="encoder", taps=Recorder())
        assert torch.equal(first, model.run(batch, at="words", taps=Recorder()))  # no dropout
    assert [part.training for part in module.modules()] == modes
    assert [parameter.requires_grad for parameter in module.parameters()] == wants
    assert hooks_of(module) == 0
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.parametrize("at", ["encoder", "words"])
def test_hooks_go_away_when_the_tap_fails(model: LoadedModel, at: str) -> None:
    def fail(_tensor: torch.Tensor) -> torch.Tensor:
        raise KeyError("tap")

    model.module.train()
    with pytest.raises(KeyError, match="tap"):
        model.run(batch_of(model, "good"), at=at, taps=Recorder(fail))
    assert hooks_of(model.module) == 0
    assert all(part.training for part in model.module.modules())


def test_a_tap_that_changes_the_shape_is_an_error(model: LoadedModel) -> None:
    with pytest.raises(EngineError, match="shape"):
        model.run(batch_of(model, "good"), at="encoder", taps=Recorder(lambda t: t[:, :1]))


def test_unknown_input_layers_name_the_known_ones(model: LoadedModel) -> None:
    with pytest.raises(EngineError, match="encoder, words"):
        model.run(batch_of(model, "good"), at="pixels", taps=Recorder())


class Bag(nn.Module):
    """The smallest text classifier: no repeated layers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(18, 4)
        self.unused = nn.Embedding(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        mask = attention_mask[..., None]
        return self.head((self.table(input_ids) * mask).sum(1) / mask.sum(1))  # type: ignore[no-any-return]


def test_without_repeated_layers_the_default_input_layer_is_the_words() -> None:
    module = Bag()
    assert find_blocks(module) == []
    model = wrap(module, modality="text", tokenizer=wordpiece())
    assert (model.default_at, model.input_layers, model.classes) == (
        "words",
        ("words",),
        ("0", "1"),
    )
    taps = Recorder()
    model.run(batch_of(model, "good", "a nice film"), at="words", taps=taps)
    assert taps.events == ["input_layer"]


def test_a_wrong_number_of_class_names_is_reported() -> None:
    names = ("a", "b", "c")
    with pytest.raises(ModelLoadError, match=r"\(2, 2\) for 3 class names"):
        wrap(Bag(), modality="text", tokenizer=wordpiece(), classes=names)
    unchecked = wrap(Bag(), modality="text", classes=names)  # nothing to try it with
    with pytest.raises(EngineError, match=r"\(1, 2\).*\(1, 3\)"):
        unchecked.run(batch_of(unchecked, {"input_ids": [2, 3]}), at="words", taps=Recorder())


def test_other_threads_do_not_meet_the_taps(model: LoadedModel) -> None:
    batch = batch_of(model, "a nice film")

    def logits() -> torch.Tensor:
        with torch.no_grad():
            return model.module(**batch.inputs).logits

    seen: list[torch.Tensor] = []

    def meanwhile(tensor: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: seen.append(logits()))
        thread.start()
        thread.join()
        return tensor * 0

    taps = Recorder(meanwhile)
    zeroed = model.run(batch, at="encoder", taps=taps)
    assert taps.events == ["encoder_begins", "input_layer"]
    assert torch.equal(seen[0], logits())
    assert not torch.equal(zeroed, logits())


# --- hidden states: those that the model's own code reports


def of_texts() -> tuple[LoadedModel, Batch]:
    model = te.wrap(bert().eval(), tokenizer=wordpiece(), modality="text")
    return model, model.collate(model.encode(text_items("a good movie", "bad")))


def test_hidden_states_are_those_of_transformers() -> None:
    model, batch = of_texts()
    with torch.no_grad():
        own = model.module(**batch.inputs, output_hidden_states=True)
    layers = tuple(range(len(own.hidden_states)))
    with torch.no_grad():
        found = read_states(model, batch, layers)
    torch.testing.assert_close(found.logits, own.logits, rtol=0, atol=0)
    for mine, theirs in zip(found.hidden, own.hidden_states, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert found.mask.sum(dim=1).tolist() == [one.length for one in batch.encoded]
    special = [[token.special for token in one.features] for one in batch.encoded]
    for row, marks in enumerate(special):
        assert found.own[row, : len(marks)].tolist() == [not mark for mark in marks]
    assert not found.own[~found.mask].any()
    assert readable_layers(model, batch) == dict.fromkeys(layers, 16)
    positions = positions_of(batch, int(batch.lengths.max()))
    assert positions.tolist() == (batch.inputs["attention_mask"] == 1).tolist()
    with pytest.raises(ConfigurationError, match="layer 9"):
        read_states(model, batch, (9,))


def test_pictures_have_all_their_positions() -> None:
    torch.manual_seed(0)
    of_timm = VisionTransformer(
        img_size=24, patch_size=8, embed_dim=16, depth=3, num_heads=2, num_classes=3
    )
    for module in (of_timm.eval(), vit()):
        model = te.wrap(module, modality="image", input_size=(3, 24, 24))
        batch = model.collate(model.encode(text_items({"pixel_values": torch.zeros(3, 24, 24)})))
        found = read_states(model, batch, (0, 1))
        assert found.mask.all()
        assert found.hidden[0].shape[1] == batch.encoded[0].length == 10
        assert found.own.tolist() == [[False] + [True] * 9]


def test_the_graph_reaches_the_weights_where_gradients_are_on() -> None:
    model, batch = of_texts()
    found = read_states(model, batch, (0, 1))
    torch.autograd.backward(found.hidden[1].sum())
    table = model.module.get_input_embeddings().weight
    assert table.grad is not None and table.grad.any()
    assert not any(part._forward_hooks for part in model.module.modules())
    assert not model.module.training


def test_train_mode_is_kept_on_request() -> None:
    model, batch = of_texts()
    model.module.train()
    for part in model.module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    torch.manual_seed(0)
    noisy = read_states(model, batch, (1,), training=True).hidden[0]
    plain = read_states(model, batch, (1,)).hidden[0]
    assert (noisy - plain).abs().max() > 1e-3
    assert model.module.training
