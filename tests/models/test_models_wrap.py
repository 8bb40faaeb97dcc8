"""Wrapping modules that are in memory."""

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
import transformers
from PIL import Image
from tiny_language import byte_pairs
from tiny_models import bert, text_items, wordpiece
from torch import nn

import transexplain as te
from transexplain.errors import ModelLoadError
from transexplain.models.assemble import unique_names
from transexplain.models.load import wrap
from transexplain.models.loaded_model import Encoded
from transexplain.types.items import PatchGrid


def test_names_come_from_the_config_unless_given() -> None:
    module = bert(id2label={0: "no", 1: "yes", 2: "yes"})
    model = wrap(module, modality="text", tokenizer=wordpiece())
    assert model.classes == ("no", "yes (1)", "yes (2)")
    assert wrap(module, modality="text", classes=["a", "b", "c"]).classes == ("a", "b", "c")
    assert model.module is module
    assert model.ref.source.endswith("modeling_bert.BertForSequenceClassification")
    assert unique_names(["a", "b", "a"]) == ("a (0)", "b", "a (2)")


def test_digest_is_of_the_weights_and_the_class() -> None:
    class Other(nn.Linear):
        pass

    def digest(kind: type[nn.Linear], bias: float) -> str:
        part = kind(2, 2)
        nn.init.ones_(part.weight)
        nn.init.constant_(part.bias, bias)
        module = nn.Sequential(nn.Flatten(), part)
        return wrap(module, modality="image", input_size=(1, 1, 2)).ref.digest

    assert digest(nn.Linear, 0) == digest(nn.Linear, 0)
    assert len({digest(nn.Linear, 0), digest(nn.Linear, 1), digest(Other, 0)}) == 3


def test_timm_models_bring_their_transform() -> None:
    sizes = {"img_size": 48, "embed_dim": 16, "depth": 2, "num_heads": 2}
    module = timm.create_model("vit_tiny_patch16_224", num_classes=3, **sizes)
    model = wrap(module)
    assert (model.modality, model.classes) == ("image", ("0", "1", "2"))
    assert te.load_model(module).ref.digest == model.ref.digest
    [one] = model.encode(text_items(Image.new("RGB", (100, 80))))
    assert one.inputs["pixel_values"].shape == (3, 48, 48)
    grid = PatchGrid(rows=3, cols=3, height=48, width=48, prefix=1)
    assert replace(one.features, box=grid.box) == grid
    # resized to 66 x 53, of which the middle 48 x 48 are seen
    assert one.features.box == pytest.approx((9 / 66, 2 / 53, 57 / 66, 50 / 53), abs=0.005)


def test_a_picture_size_is_required_only_where_it_is_unknown() -> None:
    module = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(ModelLoadError, match="input_size="):
        wrap(module, modality="image")
    by_transform = wrap(module, modality="image", transform=lambda _: torch.zeros(3, 7, 9))
    [one] = by_transform.encode(text_items(Image.new("RGB", (5, 5))))
    assert isinstance(one, Encoded)
    assert one.features == PatchGrid(rows=7, cols=9, height=7, width=9)
    with pytest.raises(ModelLoadError, match=r"tensor \(3, H, W\)"):
        wrap(module, modality="image", transform=lambda _: torch.zeros(3))


@pytest.mark.parametrize("package", ["bitsandbytes.nn.modules", "awq.modules"])
def test_packed_weights_are_refused_by_name(package: str) -> None:
    class Linear4bit(nn.Linear):
        pass

    Linear4bit.__module__ = package
    module = nn.Sequential(nn.Embedding(9, 4), Linear4bit(4, 2))
    expected = f"1 is a Linear4bit of {package.partition('.')[0]}, whose weights are packed"
    with pytest.raises(ModelLoadError, match=expected):
        wrap(module, modality="text", classes=("no", "yes"))


class TorchEncoder(nn.Module):
    """Torch's own encoder below a mean over the words, with a padding mask."""

    def __init__(self, *, nested: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.words = nn.Embedding(40, 16)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
        self.head = nn.Linear(16, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
        weights = attention_mask[..., None].to(hidden.dtype)
        return self.head((hidden * weights).sum(1) / weights.sum(1))


def test_nested_tensors_stay_off_while_a_model_is_read_and_explained() -> None:
    texts = ["film", "a good film [x] nice"]
    relevance = []
    for nested in (True, False):
        module = TorchEncoder(nested=nested).eval()
        model = wrap(module, tokenizer=wordpiece())
        found = te.explain(model, texts)
        assert [abs(one.ledger.gap) <= 5e-6 * one.ledger.magnitude for one in found] == [True, True]
        te.evaluate(model, texts, metrics="activation")  # passes without gradients
        relevance.append(np.concatenate([one.relevance for one in found]))
        assert module.encoder.use_nested_tensor is nested
    assert np.array_equal(*relevance)


class Int8(torch.Tensor):
    """Weights in 8 bits that are unpacked where they are used; nothing else reads them."""

    @staticmethod
    def __new__(cls, plain: torch.Tensor) -> "Int8":
        return torch.Tensor._make_wrapper_subclass(cls, plain.shape, dtype=plain.dtype)

    def __init__(self, plain: torch.Tensor) -> None:
        self.scale = plain.abs().max() / 127
        self.packed = (plain / self.scale).round().to(torch.int8)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(f"Int8 has no {func}")


@pytest.mark.parametrize("package", ["torchao.quantization", "of_my_own"])
def test_packed_tensors_are_refused_by_name(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Int8, "__module__", package)
    module = bert()
    packed = Int8(module.classifier.weight.detach())
    module.classifier.weight = nn.Parameter(packed, requires_grad=False)
    with pytest.raises(ModelLoadError, match=r"classifier.weight.* Int8.*quantisation"):
        wrap(module, tokenizer=wordpiece())


@pytest.mark.parametrize("how", ["whole", "in place", "a layer", "forward", "DataParallel"])
def test_a_compiled_or_parallel_module_is_explained_as_it_was_written(how: str) -> None:
    plain = wrap(bert(), tokenizer=wordpiece())
    module = bert()
    given: nn.Module = module
    if how == "whole":
        given = torch.compile(module, backend=_never)
    elif how == "in place":
        module.compile(backend=_never)
    elif how == "a layer":
        layers = module.bert.encoder.layer
        layers[0] = torch.compile(layers[0], backend=_never)
    elif how == "forward":
        module.forward = torch.compile(module.forward, backend=_never)
    else:
        given = nn.DataParallel(module)
    model = wrap(given, tokenizer=wordpiece())
    assert model.module is module
    assert model.sites.block_name == plain.sites.block_name
    for method in ("lrp", "gae", "occlusion"):
        (one,), (other,) = (te.explain(each, "a good film", method) for each in (model, plain))
        assert np.array_equal(one.relevance, other.relevance)
    if how not in ("whole", "DataParallel"):  # it is compiled as before
        with torch.no_grad(), pytest.raises(Exception, match="compiled after all"):
            module(input_ids=torch.ones(1, 3, dtype=torch.long))


def _never(graph: object, inputs: object) -> None:
    raise AssertionError("compiled after all")


def test_a_decoder_without_a_padding_token_names_the_remedy() -> None:
    reads = byte_pairs()
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32}
    ids = {"vocab_size": len(reads), "bos_token_id": 0, "eos_token_id": 0}
    module = transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**sizes, **ids))
    with pytest.raises(ModelLoadError, match="set pad_token_id"):
        wrap(module, tokenizer=reads)
    module.config.pad_token_id = reads.pad_token_id
    texts = ["a", "a longer text"]
    together = te.explain(wrap(module, tokenizer=reads), texts)
    alone = [te.explain(wrap(module, tokenizer=reads), text)[0] for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert one.logit == pytest.approx(other.logit, abs=1e-5)


class ReadTwice(nn.Module):
    """Its encoder reads every text forwards and backwards."""

    def __init__(self) -> None:
        super().__init__()
        whole = bert()
        self.encoder, self.head = whole.bert, nn.Linear(2 * whole.config.hidden_size, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        passes = [
            self.encoder(ids, attention_mask=mask).last_hidden_state.mean(1)
            for ids, mask in ((input_ids, attention_mask), (input_ids.flip(1), attention_mask))
        ]
        return self.head(torch.cat(passes, dim=1))


@pytest.mark.parametrize("method", ["lrp", "integrated-gradients"])
def test_a_text_that_is_also_read_beside_the_input_layer_is_noted(method: str) -> None:
    (twice,) = te.explain(wrap(ReadTwice().eval(), tokenizer=wordpiece()), "a good film", method)
    (once,) = te.explain(wrap(bert(), tokenizer=wordpiece()), "a good film", method)
    assert any("of the first pass" in note for note in twice.notes)
    assert not any("of the first pass" in note for note in once.notes)
