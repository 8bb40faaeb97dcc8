"""Hidden states: those that the model's own code reports, for texts and pictures."""

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from tiny_models import bert, text_items, vit, wordpiece

import transexplain as te
from transexplain.errors import ConfigurationError
from transexplain.models.hidden_states import positions_of, read_states, readable_layers
from transexplain.models.loaded_model import Batch, LoadedModel


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
