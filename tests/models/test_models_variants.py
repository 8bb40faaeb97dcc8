"""Models with some parameters replaced: they run, they share, and the audited one is untouched."""

from collections.abc import Callable

import pytest
import timm
import torch
import transformers
from tiny_models import SIZES, bert, text_items, vit, wordpiece
from torch import Tensor, nn

import transexplain as te
from transexplain.errors import EngineError
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel
from transexplain.models.variants import kept, parameters_from_the_top, variant, word_table

TEXTS = text_items("a nice film", "good")
PICTURES = [torch.rand(3, 24, 24, generator=torch.Generator().manual_seed(n)) for n in (0, 1)]
GIVEN = text_items(*({"pixel_values": picture} for picture in PICTURES))


def text() -> LoadedModel:
    return te.wrap(bert(), modality="text", tokenizer=wordpiece())


def picture() -> LoadedModel:
    return te.wrap(vit(), modality="image")


def timm_picture() -> LoadedModel:
    torch.manual_seed(0)
    sizes = {"img_size": 24, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    module = timm.create_model("vit_tiny_patch16_224", num_classes=4, **sizes)
    return te.wrap(module.eval(), modality="image")


def batch_of(model: LoadedModel) -> Batch:
    items = TEXTS if model.modality == "text" else GIVEN
    return model.collate([one for one in model.encode(items) if isinstance(one, Encoded)])


def logits_of(model: LoadedModel) -> Tensor:
    with torch.no_grad():
        return model.logits(batch_of(model))


MODELS = pytest.mark.parametrize("make", [text, picture, timm_picture])


@MODELS
def test_one_parameter_is_replaced_and_all_others_are_shared(
    make: Callable[[], LoadedModel],
) -> None:
    model = make()
    before = logits_of(model)
    names = dict(model.module.named_parameters())
    name = parameters_from_the_top(model)[1][0]  # of the last layer
    new = torch.full_like(names[name], 0.3)
    other = variant(model, {name: new})
    assert not torch.allclose(logits_of(other), before)
    assert torch.equal(logits_of(model), before)
    copied = dict(other.module.named_parameters())
    assert copied.keys() == names.keys()
    for key, parameter in names.items():
        assert (copied[key].data_ptr() == parameter.data_ptr()) == (key != name), key
    assert copied[name].data_ptr() == new.data_ptr()
    for one, shared in zip(other.module.buffers(), model.module.buffers(), strict=True):
        assert one.data_ptr() == shared.data_ptr()
    assert other.ref.digest not in ("", model.ref.digest)
    assert other.ref.digest == variant(model, {name: new.clone()}).ref.digest
    assert other.ref.digest != variant(model, {name: new + 1}).ref.digest


@MODELS
@pytest.mark.parametrize("method", ["lrp", "rollout", "gradient-x-input"])
def test_a_variant_is_explained_like_a_model_with_its_weights(
    make: Callable[[], LoadedModel], method: str
) -> None:
    model, same = make(), make()
    new = {
        name: torch.randn(one.shape, generator=torch.Generator().manual_seed(3))
        for name, one in model.module.named_parameters()
        if one.dim() > 1
    }
    with torch.no_grad():
        for name, values in new.items():
            same.module.get_parameter(name).copy_(values)
    items = [item.content for item in (TEXTS if model.modality == "text" else GIVEN)]
    expected = te.explain(same, items, method=method)
    for one, wanted in zip(
        te.explain(variant(model, new), items, method=method), expected, strict=True
    ):
        assert one.relevance == pytest.approx(wanted.relevance, abs=1e-12)


class Tied(nn.Module):
    """An embedding whose table also reads the classes out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(18, 8)
        self.out = nn.Linear(8, 18, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.out(self.embedding(input_ids).mean(1))  # type: ignore[no-any-return]


def test_tied_weights_stay_tied_whichever_name_is_given() -> None:
    model = te.wrap(Tied(), modality="text", tokenizer=wordpiece())
    for name in ("embedding.weight", "out.weight"):
        module = variant(model, {name: torch.ones(18, 8)}).module
        assert isinstance(module, Tied)
        assert module.out.weight is module.embedding.weight
        assert bool((module.embedding.weight == 1).all())
    assert word_table(model) == "embedding.weight"


def test_parameters_that_do_not_fit_are_named() -> None:
    model = text()
    with pytest.raises(EngineError, match=r"'nothing\.weight'.*no such parameter"):
        variant(model, {"nothing.weight": torch.ones(1)})
    with pytest.raises(EngineError, match=r"'classifier\.bias'.*shape \(4,\).*shape \(3,\)"):
        variant(model, {"classifier.bias": torch.ones(4)})


def test_the_steps_of_an_encoder_go_from_its_classifier_to_its_embeddings() -> None:
    steps = parameters_from_the_top(text())
    assert {name.split(".")[1] for name in steps[0]} == {"bias", "pooler", "weight"}
    for number, part in ((1, ".layer.1."), (2, ".layer.0."), (3, ".embeddings.")):
        assert all(part in name for name in steps[number])
    tops = [step[0] for step in parameters_from_the_top(timm_picture())]
    assert tops == ["norm.weight", "blocks.1.norm1.weight", "blocks.0.norm1.weight", "cls_token"]
    names = [name for step in parameters_from_the_top(picture()) for name in step]
    assert sorted(names) == sorted(dict(picture().module.named_parameters()))


class Flat(nn.Module):
    """No repeated layer list."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(18, 8)
        self.middle = nn.Linear(8, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.out(self.middle(self.embedding(input_ids).mean(1)).tanh())  # type: ignore[no-any-return]


def test_steps_of_modules_that_are_laid_out_otherwise() -> None:
    flat = te.wrap(Flat(), modality="text", tokenizer=wordpiece())
    assert parameters_from_the_top(flat) == (
        ("out.weight", "out.bias"),
        ("embedding.weight", "middle.weight", "middle.bias"),
    )
    module = bert()
    module._modules = dict(reversed(module._modules.items()))  # the classifier registered first
    steps = parameters_from_the_top(te.wrap(module, modality="text", tokenizer=wordpiece()))
    assert {name.split(".")[1] for name in steps[0]} == {"bias", "pooler", "weight"}
    assert len(steps) == 4
    config = transformers.AlbertConfig(**SIZES, embedding_size=16, vocab_size=18)
    shared = transformers.AlbertForSequenceClassification(config)
    steps = parameters_from_the_top(te.wrap(shared, modality="text", tokenizer=wordpiece()))
    assert [step[-1].split(".")[-2] for step in steps] == [
        *("classifier", "ffn_output", "embedding_hidden_mapping_in")  # its layer is used twice
    ]


def test_cached_values_are_computed_once_for_every_key() -> None:
    model, calls = text(), iter(range(9))
    values = [kept(model, "a", key, lambda: next(calls)) for key in (1, 1, 2, 2, 1)]
    assert values == [0, 0, 1, 1, 2]
    assert [kept(model, name, 1, lambda: next(calls)) for name in "ba"] == [3, 2]
    assert kept(text(), "a", 1, lambda: next(calls)) == 4
