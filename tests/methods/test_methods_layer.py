"""Grad-CAM over layers, and decoded to the vocabulary, against the same by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from architectures_measured import ready
from safetensors.torch import load_file, save_file
from tiny_models import bert, hooks_of, text_items, vit, wordpiece
from torch import Tensor, nn

import transexplain as te
from transexplain.errors import ConfigurationError, ModelLoadError
from transexplain.methods.layer_gradcam import highest
from transexplain.models.hidden_states import blocks_of, run_layers
from transexplain.models.lm_head import head_names, lm_head
from transexplain.models.loaded_model import Batch, Encoded, LoadedModel

TEXTS = ["a good film", "nice", "unbelievably good goods [x] a film", "good good film"]
LAYERS = 3
NAMES = {0: "bad", 1: "so-so", 2: "good"}


@pytest.fixture(scope="module")
def module() -> Any:
    """A tiny BERT whose weights are far from their start, so that no effect is near zero."""
    found = bert(id2label=NAMES, num_hidden_layers=LAYERS).double()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(
                torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 3
            )
    return found


@pytest.fixture(scope="module")
def model(module: Any) -> LoadedModel:
    return te.wrap(module, tokenizer=wordpiece(), modality="text")


@pytest.fixture(scope="module")
def language_model(module: Any) -> Any:
    """The masked language model of the same encoder, its head moved off its start too."""
    torch.manual_seed(3)
    found = transformers.BertForMaskedLM(module.config).double().eval()
    found.bert.load_state_dict(module.bert.state_dict(), strict=False)
    with torch.no_grad():
        for parameter in found.cls.predictions.transform.parameters():
            parameter.add_(torch.randn_like(parameter) / 3)
        found.cls.predictions.bias.add_(torch.randn(18))
    return found


@pytest.fixture(scope="module")
def head(language_model: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("head")
    language_model.save_pretrained(folder)
    return str(folder)


def by_hand(module: Any, text: str, layer: int, weigh: Callable[[Tensor], Tensor]) -> Any:
    """Ids, hidden vectors behind a layer and their gradient, by transformers and autograd."""
    inputs = wordpiece()(text, return_tensors="pt")
    out = module(**inputs, output_hidden_states=True)
    hidden = out.hidden_states[layer + 1]
    (gradient,) = torch.autograd.grad(weigh(out.logits[0]), hidden)
    return inputs["input_ids"][0], hidden[0].detach(), gradient[0]


#: target -> rank -> the sum of logits that is explained
SUMS: dict[str, list[Callable[[Tensor], Tensor]]] = {
    "all": [lambda logits: logits[0], lambda logits: logits[1], lambda logits: logits[2]],
    "top:2": [lambda logits: logits.max(), lambda logits: logits.sort(descending=True)[0][1]],
    "contrast:good-bad": [lambda logits: logits[2] - logits[0]],
}


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("target", SUMS)
def test_layer_gradcam_is_what_autograd_gives_by_hand(
    model: LoadedModel, module: Any, layer: int, target: str
) -> None:
    signed = te.explain(model, TEXTS, "layer-gradcam", layer=layer, target=target, relu=False)
    cut = te.explain(model, TEXTS, "layer-gradcam", layer=layer, target=target)
    local = te.explain(
        model, TEXTS, "layer-gradcam", layer=layer, target=target, relu=False, weights="local"
    )
    assert len(signed) == len(TEXTS) * len(SUMS[target])
    for one, positive, own in zip(signed, cut, local, strict=True):
        _, hidden, gradient = by_hand(module, one.text or "", layer, SUMS[target][one.rank])
        expected = (hidden @ gradient.mean(dim=0)).numpy()
        np.testing.assert_allclose(one.relevance, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(positive.relevance, expected.clip(min=0), atol=1e-12)
        np.testing.assert_allclose(own.relevance, (hidden * gradient).sum(-1), atol=1e-12)
        assert (one.unit, one.at, one.ledger) == ("score", f"layer {layer}", None)
        silent = any("speaks for the target" in note for note in positive.notes)
        assert silent == (not (one.relevance > 0).any())


def test_relevance_of_lrp_at_a_layer(model: LoadedModel, module: Any) -> None:
    """At the embeddings that of `lrp`; behind the last layer, what the head alone hands back."""
    signed = {"relu": False, "weights": "lrp", "target": "all"}
    below = te.explain(model, TEXTS, "layer-gradcam", layer="embeddings", **signed)
    for one, whole in zip(below, te.explain(model, TEXTS, "lrp", "all"), strict=True):
        np.testing.assert_allclose(one.relevance, whole.relevance, rtol=1e-9, atol=1e-12)
    last = te.explain(model, TEXTS, "layer-gradcam", layer=LAYERS - 1, **signed)
    for one in last:
        inputs = wordpiece()(one.text or "", return_tensors="pt")
        with torch.no_grad():
            hidden = module(**inputs, output_hidden_states=True).hidden_states[-1][0, 0]
            pooled = module.bert.pooler.dense(hidden)
            # tanh is f(x) / x, linear layers are LRP-0
            slopes = module.classifier.weight[one.class_index] * pooled.tanh() / pooled
            by_hand = hidden * (slopes @ module.bert.pooler.dense.weight)
        assert one.relevance[0] == pytest.approx(float(by_hand.sum()), abs=1e-12)
        assert not one.relevance[1:].any(), "the head reads the class token alone"
    middle = te.explain(model, TEXTS, "layer-gradcam", layer=0, **signed)
    local = te.explain(
        model, TEXTS, "layer-gradcam", layer=0, relu=False, weights="local", target="all"
    )
    assert any(
        not np.allclose(one.relevance, other.relevance)
        for one, other in zip(middle, local, strict=True)
    )


def algorithm_1(  # noqa: PLR0917 - the lines of the algorithm by name
    module: Any, language_model: Any, text: str, layer: int, weigh: Callable[[Tensor], Tensor],
    tau: int | None = None, pooled: bool = False, text_only: bool = False,
    other: list[float] | None = None,
) -> dict[int, float]:  # fmt: skip
    """Hou and Castanon's Algorithm 1 line by line: token -> its score.

    `layer` counts from 0 as everywhere here. Line 9 adds to the score of token i, as equation 5 has
    it. `pooled` and `text_only` are what the parameters of these names change, `other` is
    some other score of the positions in line 3.
    """
    ids, hidden, gradient = by_hand(module, text, layer, weigh)  # lines 1 and 2
    positions, units = hidden.shape
    alpha = []  # line 3
    for j in range(positions):
        slopes = gradient.mean(dim=0) if pooled else gradient[j]
        alpha.append(max(0.0, sum(float(slopes[k] * hidden[j, k]) for k in range(units))))
    alpha = alpha if other is None else [max(0.0, score) for score in other]
    with torch.no_grad():
        read = language_model.cls(hidden[None])[0].exp()  # line 4: the softmax is over V
    tokens = sorted(set(ids.tolist()))
    shares = []  # line 5: a row for each token, a column for each position
    for token in tokens:
        row = []
        for j in range(positions):
            over = read[j, tokens] if text_only else read[j]
            row.append(float(read[j, token] / over.sum()))
        shares.append(row)
    scores = dict.fromkeys(tokens, 0.0)
    for i, token in enumerate(tokens):  # line 6
        for j in range(positions):  # line 7
            above = sum(shares[other][j] > shares[i][j] for other in range(len(tokens)))
            if tau is None or above < tau:  # line 8
                scores[token] += shares[i][j] * alpha[j]  # line 9
    return scores


VARIANTS: list[dict[str, Any]] = [
    {},
    {"tau": 1},
    {"tau": 2, "weights": "pooled"},
    {"among": "text"},
    {"among": "text", "weights": "pooled"},
    {"tau": 1000},
]


@pytest.mark.parametrize("layer", range(LAYERS))
@pytest.mark.parametrize("params", VARIANTS, ids=str)
def test_decoded_gradcam_is_algorithm_1(
    model: LoadedModel, module: Any, language_model: Any, head: str, layer: int, params: Any
) -> None:
    every = te.explain(
        model, TEXTS, "decoded-gradcam", layer=layer, target="all", head=head, **params
    )
    for one in every:
        wanted = algorithm_1(
            module, language_model, one.text or "", layer, SUMS["all"][one.rank],
            params.get("tau"), params.get("weights") == "pooled", params.get("among") == "text",
        )  # fmt: skip
        ids = wordpiece()(one.text or "")["input_ids"]
        shared = [wanted[token] / ids.count(token) for token in ids]
        np.testing.assert_allclose(one.relevance, shared, rtol=1e-9, atol=1e-12)
        assert (one.unit, one.at) == ("score", f"layer {layer}")
    assert any(one.relevance.max() > 0 for one in every)


@pytest.mark.parametrize("layer", [0, 1])
def test_any_score_of_a_layer_can_be_decoded(
    model: LoadedModel, module: Any, language_model: Any, head: str, layer: int
) -> None:
    """Line 3, "or some other score": here the relevance by LRP."""
    params = {"layer": layer, "weights": "lrp", "target": "all"}
    scored = te.explain(model, TEXTS, "layer-gradcam", relu=False, **params)
    decoded = te.explain(model, TEXTS, "decoded-gradcam", head=head, tau=2, **params)
    for one, score in zip(decoded, scored, strict=True):
        wanted = algorithm_1(
            module, language_model, one.text or "", layer, SUMS["all"][one.rank], 2,
            other=score.relevance.tolist(),
        )  # fmt: skip
        ids = wordpiece()(one.text or "")["input_ids"]
        shared = [wanted[token] / ids.count(token) for token in ids]
        np.testing.assert_allclose(one.relevance, shared, rtol=1e-9, atol=1e-12)
    assert any(one.relevance.max() > 0 for one in decoded)


@pytest.mark.parametrize("method", ["layer-gradcam", "decoded-gradcam"])
def test_layer_0_of_the_paper_is_plain_grad_cam_at_the_embeddings(
    model: LoadedModel, module: Any, method: str
) -> None:
    params = {"layer": "embeddings", "weights": "local", "target": "all"}  # no head is needed
    for one in te.explain(model, TEXTS, method, **params):
        _, hidden, gradient = by_hand(module, one.text or "", -1, SUMS["all"][one.rank])
        expected = (hidden * gradient).sum(-1).clamp(min=0)
        np.testing.assert_allclose(one.relevance, expected, rtol=1e-9, atol=1e-12)
        assert (one.unit, one.at) == ("score", "encoder")
    same = te.explain(model, TEXTS, "gradient-x-input", target="all")
    signed = te.explain(model, TEXTS, "layer-gradcam", relu=False, **params)
    for left, right in zip(same, signed, strict=True):
        np.testing.assert_allclose(left.relevance, right.relevance, rtol=1e-9, atol=1e-12)


def test_tau_keeps_the_highest_contributions_of_each_position() -> None:
    given = torch.tensor([[0.1, 0.5, 0.2], [0.3, 0.3, 0.3], [0.0, 0.0, 0.9]])
    assert highest(given, None).equal(given)
    assert highest(given, 3).equal(given)
    two = torch.tensor([[0.0, 0.5, 0.2], [0.3, 0.3, 0.0], [0.0, 0.0, 0.9]])
    assert highest(given, 2).equal(two)
    assert (highest(given, 1) > 0).sum(dim=1).tolist() == [1, 1, 1]


def test_batches_and_padding_change_nothing(model: LoadedModel, head: str) -> None:
    params: dict[str, Any] = {"layer": 1, "target": ["top:2", "contrast:good-bad"]}
    method, params = "decoded-gradcam", {**params, "head": head, "tau": 2}
    hooks = hooks_of(model.module)  # transformers adds its own where hidden states are requested
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    together = te.explain(model, TEXTS, method, batch_tokens=10_000, **params)
    alone = te.explain(model, TEXTS, method, batch_tokens=1, **params)
    for left, right in zip(together, alone, strict=True):
        assert left.relevance.dtype == np.float64
        np.testing.assert_allclose(left.relevance, right.relevance, rtol=1e-9, atol=1e-12)
    assert hooks_of(model.module) == hooks
    assert all(before[k].equal(v) for k, v in model.module.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.module.parameters())


def test_layers_count_from_both_ends_and_the_last_but_one_is_the_default(
    model: LoadedModel,
) -> None:
    default, requested, counted = (
        te.explain(model, TEXTS[0], "layer-gradcam", **params)[0]
        for params in ({}, {"layer": 1}, {"layer": -2})
    )
    assert default.at == requested.at == counted.at == "layer 1"
    np.testing.assert_array_equal(default.relevance, requested.relevance)
    single = te.wrap(bert(num_hidden_layers=1), tokenizer=wordpiece(), modality="text")
    assert te.explain(single, "film", "layer-gradcam")[0].at == "layer 0"
    for wrong in (3, -4):
        with pytest.raises(ConfigurationError, match=r"has 3 layers, so layer is -3..2"):
            te.explain(model, "film", "layer-gradcam", layer=wrong)
    for wrong_kind in (1.0, True, "last"):
        with pytest.raises(ConfigurationError, match="whole number or 'embeddings'"):
            te.explain(model, "film", "layer-gradcam", layer=wrong_kind)


def test_a_last_layer_that_is_read_at_the_class_token_only_says_so(model: LoadedModel) -> None:
    (last,) = te.explain(model, TEXTS[0], "layer-gradcam", layer=-1, weights="local", relu=False)
    assert last.notes == ("the logits read layer 2 at special positions only",)
    assert last.relevance[0] != 0
    np.testing.assert_array_equal(last.relevance[1:], 0)
    (pooled,) = te.explain(model, TEXTS[0], "layer-gradcam", layer=-1, relu=False)
    assert (pooled.relevance != 0).all()
    for one in te.explain(model, TEXTS, "layer-gradcam", layer=1, target="all"):
        assert not any("special" in note for note in one.notes)


def test_pictures_have_relevance_per_patch() -> None:
    module = vit().double()
    model = te.wrap(module, modality="image")
    pixels = torch.randn(3, 24, 24, generator=torch.Generator().manual_seed(1)).double()
    (one,) = te.explain(
        model, {"pixel_values": pixels}, "layer-gradcam", layer=0, relu=False, target="class:1"
    )
    out = module(pixel_values=pixels[None], output_hidden_states=True)
    hidden = out.hidden_states[1]
    (gradient,) = torch.autograd.grad(out.logits[0, 1], hidden)
    expected = (hidden[0] @ gradient[0].mean(0)).detach().numpy()
    assert one.relevance.shape == (3, 3)
    np.testing.assert_allclose(one.relevance, expected[1:].reshape(3, 3), atol=1e-12)
    assert one.prefix_relevance == pytest.approx(expected[:1])
    with pytest.raises(ConfigurationError, match="is for text, and this model reads image"):
        te.explain(model, {"pixel_values": pixels}, "decoded-gradcam")


def collated(model: LoadedModel, *texts: str) -> Batch:
    encoded = model.encode(text_items(*texts))
    return model.collate([one for one in encoded if isinstance(one, Encoded)])


class Positional(nn.Module):
    """Layers in lists of lists, positions first, that give tuples and write in place."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(18, 4)
        self.stages = nn.ModuleList(nn.ModuleList(Named(4) for _ in range(2)) for _ in range(2))
        self.out = nn.Linear(4, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.words(input_ids).transpose(0, 1)
        for stage in self.stages:
            for layer in stage:
                hidden = layer(hidden)[1]
                hidden *= 2
        mask = attention_mask.T[:, :, None]
        pooled: Tensor = self.out((hidden * mask).sum(0) / mask.sum(0))
        return pooled


class Named(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> tuple[str, Tensor]:
        return "hidden", self.inner(hidden).tanh()


def test_layers_in_any_layout_that_write_in_place() -> None:
    torch.manual_seed(0)
    module = Positional().double().eval()
    model = te.wrap(module, tokenizer=wordpiece(), modality="text", classes=["no", "yes"])
    assert model.sites.layout == "positions_first"
    assert blocks_of(model) == tuple(layer for stage in module.stages for layer in stage)
    batch = collated(model, *TEXTS[:2])
    layers = run_layers(model, batch)
    hidden = [module.words(batch.inputs["input_ids"])]
    for layer in blocks_of(model):
        hidden.append(layer(hidden[-1] * (1 if len(hidden) == 1 else 2))[1])
    for number in range(4):
        torch.testing.assert_close(layers.hidden(number), hidden[number + 1].detach())
    seed = torch.tensor([[1.0, -1.0], [0.0, 1.0]]).double()
    slope = 2 * (seed @ module.out.weight)[:, None] / batch.lengths[:, None, None]
    own = batch.inputs["attention_mask"][:, :, None]
    torch.testing.assert_close(layers.gradient(3, seed), (slope * own).detach())


FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {},
    "electra": {"embedding_size": 8},
    "albert": {"embedding_size": 8},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "deberta-v2": {},
    "megatron-bert": {},  # ends in a norm of its own
    "modernbert": {"bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3},
}


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_head_is_what_the_language_model_does_after_its_encoder(
    kind: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 18, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "max_position_embeddings": 40, "pad_token_id": 0,
    }  # fmt: skip
    config = transformers.AutoConfig.for_model(kind, **{**sizes, **FAMILIES[kind]})
    language = transformers.AutoModelForMaskedLM.from_config(config).double().eval()
    with torch.no_grad():
        for parameter in language.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    classifier = transformers.AutoModelForSequenceClassification.from_config(config).double()
    classifier.base_model.load_state_dict(language.base_model.state_dict(), strict=False)
    language.save_pretrained(tmp_path)
    model = te.wrap(classifier, tokenizer=wordpiece(model_max_length=20), modality="text")
    batch = collated(model, *TEXTS[:2])
    layers = run_layers(model, batch)
    found = lm_head(model, str(tmp_path))(layers.closed(layers.index(-1)))
    with torch.no_grad():
        expected = language(**batch.inputs).logits
    for row, length in enumerate(batch.lengths.tolist()):
        torch.testing.assert_close(found[row, :length], expected[row, :length])
    assert layers.closed(0).shape == layers.hidden(0).shape


def head_tensors(language_model: Any) -> dict[str, Tensor]:
    return {
        name: value.clone().contiguous()
        for name, value in language_model.state_dict().items()
        if name in head_names(language_model.config)
    }


def decoded(model: LoadedModel, **params: Any) -> Any:
    every = te.explain(model, TEXTS[2], "decoded-gradcam", target="all", **params)
    return np.stack([one.relevance for one in every])


@pytest.mark.exhaustive
def test_a_head_beside_the_classifier_or_in_a_file_has_its_decoder_tied(
    module: Any, model: LoadedModel, language_model: Any, head: str, tmp_path: Path
) -> None:
    """A file without a decoder takes the words of the classifier."""
    module.save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    tensors = head_tensors(language_model)
    del tensors["cls.predictions.decoder.weight"]
    save_file({**weights, **tensors}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    expected = decoded(model, head=head)
    assert expected.max() > 0.01
    np.testing.assert_allclose(
        decoded(te.load_model(tmp_path, dtype="float64")), expected, rtol=1e-9
    )
    junk = {**weights, **tensors, "cls.other.weight": torch.zeros(1)}
    save_file(junk, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"not of this model: cls\.other\.weight\)"):
        te.load_model(tmp_path)
    file = tmp_path / "head.safetensors"
    save_file(tensors, file)
    np.testing.assert_allclose(decoded(model, head=str(file)), expected, rtol=1e-9)
    own = tmp_path / "own.safetensors"
    save_file({**tensors, "cls.predictions.decoder.weight": torch.zeros(18, 16).double()}, own)
    assert not np.allclose(decoded(model, head=str(own)), expected)


@pytest.mark.exhaustive
def test_heads_that_do_not_fit_are_refused(
    model: LoadedModel, language_model: Any, bert_dir: Path, tmp_path: Path
) -> None:
    tensors = head_tensors(language_model)
    file = tmp_path / "model.safetensors"

    def refused(match: str, error: type[Exception] = ConfigurationError, **params: Any) -> None:
        with pytest.raises(error, match=match):
            te.explain(model, "film", "decoded-gradcam", **params)

    refused("was not read from files; give head=")
    refused("is no directory, .safetensors file or hub id", head="/no/such/../place")
    save_file({**tensors, "cls.predictions.bias": torch.zeros(7)}, file)
    refused(r"cls\.predictions\.bias is \(7,\), the encoder's \(18,\)", head=str(tmp_path))
    kept = {name: value for name, value in tensors.items() if "transform.dense" not in name}
    save_file(kept, file)
    refused(r"lacks cls\.predictions\.transform\.dense\.bias", head=str(tmp_path))
    refused(r"no language-model head: looked for cls\.predictions\.bias", head=str(bert_dir))
    file.rename(tmp_path / "pytorch_model.bin")
    refused("which can run code", ModelLoadError, head=str(tmp_path))
    (tmp_path / "torn.safetensors").write_bytes(b"no header")
    refused("not a whole safetensors", ModelLoadError, head=str(tmp_path / "torn.safetensors"))


def test_wrong_parameters_are_named(model: LoadedModel, head: str) -> None:
    for tau in (-1, 0, 0.3, 1.5, "half", True):  # old plans: a share of positions
        with pytest.raises(
            ConfigurationError, match="tau is how many tokens each position contributes to"
        ):
            te.explain(model, "film", "decoded-gradcam", head=head, tau=tau)
    with pytest.raises(ConfigurationError, match="among is 'vocabulary' or 'text', not 'all'"):
        te.explain(model, "film", "decoded-gradcam", head=head, among="all")
    with pytest.raises(ConfigurationError, match="or 'lrp', not 'max'"):
        te.explain(model, "film", "layer-gradcam", weights="max")
    with pytest.raises(ConfigurationError, match="no parameter 'heads'"):
        te.explain(model, "film", "decoded-gradcam", heads=head)
    with pytest.raises(ConfigurationError, match=r"one vector for each of \d+ positions"):
        te.explain(ready("Swin").model, ready("Swin").items[0], "layer-gradcam", layer=0)
    module, classes = Positional().eval(), ["no", "yes"]
    plain = te.wrap(module, tokenizer=wordpiece(), modality="text", classes=classes)
    with pytest.raises(ConfigurationError, match=r"\(Positional\) is no encoder"):
        te.explain(plain, "film", "decoded-gradcam", head=head)
    assert head_names(transformers.GPT2Config()) == frozenset()


@pytest.mark.shared
def test_a_real_head_names_the_words_of_a_real_sentence(shared_dir: Path) -> None:
    models = shared_dir / "real" / "models"
    model = te.load_model(models / "minilm-sst2")
    head = str(models / "minilm-mlm-head")
    text = "a charming and often affecting journey"
    batch = collated(model, text)
    named = lm_head(model, head)(run_layers(model, batch).hidden(0))[0].argmax(-1)
    assert (named == batch.inputs["input_ids"][0])[1:-1].float().mean() > 0.5
    layer = {"layer": 2, "weights": "local"}
    (there,) = te.explain(model, text, "layer-gradcam", **layer)
    (inside,) = te.explain(model, text, "decoded-gradcam", **layer, head=head, among="text")
    (decoded,) = te.explain(model, text, "decoded-gradcam", **layer, head=head)
    assert inside.relevance.sum() == pytest.approx(there.relevance.sum(), rel=1e-4)
    assert 0 < decoded.relevance.sum() < there.relevance.sum()
