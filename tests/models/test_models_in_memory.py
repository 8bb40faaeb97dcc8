"""Models that are in memory already: what `load_model` and `wrap` make of them, and refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tiny_language import byte_pairs, causal
from tiny_models import SIZES, bert, vit, wordpiece
from torch import nn

import transexplain as te
from transexplain.errors import ModelLoadError

SETTINGS = {"vocab_size": 18, "max_position_embeddings": 20, **SIZES}


def processor() -> transformers.ViTImageProcessor:
    return transformers.ViTImageProcessor(size={"height": 24, "width": 24})


def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (30, 40, 3), dtype=np.uint8))


def same(left: te.Attribution, right: te.Attribution) -> bool:
    return left.class_name == right.class_name and np.array_equal(left.relevance, right.relevance)


def test_a_text_classifier_in_memory_explains_as_from_its_directory(bert_dir: Path) -> None:
    module = transformers.AutoModelForSequenceClassification.from_pretrained(bert_dir)
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert_dir)
    pipe = transformers.pipeline("text-classification", model=module, tokenizer=tokenizer)
    (expected,) = te.explain(te.load_model(bert_dir), "a nice film", target="good")
    given = te.load_model(module, tokenizer)
    for model in (given, te.load_model(pipe), te.wrap(module, tokenizer=tokenizer)):
        assert (model.modality, model.classes) == ("text", ("bad", "so-so", "good"))
        assert same(te.explain(model, "a nice film", target="good")[0], expected)
    assert te.load_model(given) is given


def test_a_picture_classifier_in_memory_explains_as_from_its_directory(vit_dir: Path) -> None:
    module = transformers.AutoModelForImageClassification.from_pretrained(vit_dir)
    reads = transformers.AutoImageProcessor.from_pretrained(vit_dir)
    pipe = transformers.pipeline("image-classification", model=module, image_processor=reads)
    (expected,) = te.explain(te.load_model(vit_dir), picture(), target=1)

    def as_function(image: Image.Image) -> torch.Tensor:
        return reads(images=image, return_tensors="pt")["pixel_values"][0]

    for model in (
        te.load_model(module, reads),
        te.load_model(module, as_function),
        te.load_model(pipe),
        te.wrap(module, transform=reads),
    ):
        assert model.modality == "image"
        assert same(te.explain(model, picture(), target=1)[0], expected)


def test_types_of_torch_name_the_number_type(bert_dir: Path) -> None:
    assert te.load_model(bert_dir, dtype=torch.float64).ref.dtype == "float64"


def test_half_precision_on_the_cpu_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"is bfloat16, which is slow and coarse on the CPU: mod"):
        assert te.load_model(bert().bfloat16(), wordpiece()).ref.dtype == "bfloat16"


def headless() -> nn.Module:
    return transformers.BertModel(transformers.BertConfig(**SETTINGS)).eval()


def pipeline(task: str, module: nn.Module) -> Any:
    return transformers.pipeline(task, model=module, tokenizer=wordpiece())


def test_a_pipeline_that_labels_tokens_is_loaded() -> None:
    module = transformers.BertForTokenClassification(transformers.BertConfig(**SETTINGS))
    assert te.load_model(pipeline("token-classification", module)).ref.head == "tokens"


def in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return bert()


class AlwaysDropping(nn.Module):
    """Dropout that no mode turns off."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = bert()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        pooled = self.whole.bert(input_ids, attention_mask=attention_mask).pooler_output
        return self.whole.classifier(nn.functional.dropout(pooled, 0.5))


def picture_model(module: nn.Module) -> Any:
    return te.wrap(module, modality="image", input_size=(3, 4, 4))


class Slow:
    is_fast = False


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: te.load_model(123), r"cannot load 123 \(int\); it takes a directory, a hub id"),
    (lambda: te.load_model(None), r"cannot load None \(NoneType\)"),
    (lambda: te.load_model([bert()]), r"\(list\); it takes"),
    (lambda: te.load_model(bert().state_dict()), "weights alone: load them into their module"),
    (lambda: te.load_model(wordpiece()), "is no model: the model comes first"),
    (lambda: te.load_model(wordpiece(), bert()), "is no model: the model comes first"),
    (lambda: te.load_model(processor(), vit()), "is no model: the model comes first"),
    (lambda: te.load_model("no/such/dir", wordpiece()), "'no/such/dir' brings the tokenizer"),
    (lambda: te.load_model(""), "there is no model directory ''"),
    (lambda: te.load_model(bert()), "reads texts, so its tokenizer is needed"),
    (lambda: te.load_model(vit()), r"its image processor is needed: load_model\(model, image_proc"),
    (lambda: te.load_model(nn.Linear(2, 2)), r"Linear is of no library .* use wrap\(module, mod"),
    (lambda: te.load_model(bert(), 5), "int is neither a tokenizer nor an image processor"),
    (lambda: te.load_model(bert(), wordpiece().backend_tokenizer), "Tokenizer is neither a"),
    (lambda: te.load_model(bert(), processor()), "reads texts, and what was given with it reads p"),
    (lambda: te.load_model(vit(), wordpiece()), "reads pictures, and what was given with it reads"),
    (lambda: te.load_model(bert(), wordpiece(), dtype="float64"), r"change them with model.to\(\)"),
    (lambda: te.load_model(bert(), wordpiece(), device="cpu"), "leave dtype and device out"),
    (lambda: te.load_model(headless(), wordpiece()), "BertModel is no classifier: .*ForSequenceC"),
    (
        lambda: te.load_model(pipeline("feature-extraction", headless())),
        "a pipeline for feature-extraction gives no logits",
    ),
    (lambda: te.wrap("a-model"), "wrap takes a torch module, not str"),
    (lambda: te.wrap(nn.Linear(2, 2)), "does not say what it reads: give modality='text', 'image'"),
    (lambda: te.wrap(bert(), tokenizer=Slow()), "Slow is not a fast tokenizer"),
    (lambda: te.wrap(bert(), tokenizer=wordpiece(), transform=processor()), "give one"),
    (lambda: te.wrap(bert(), tokenizer=wordpiece(), classes="abc"), "the text 'abc'; give a list"),
    (lambda: te.wrap(bert(), tokenizer=wordpiece(), classes=["a"]), "for 1 class names"),
    (lambda: te.wrap(bert(), modality="audio"), "unknown modality 'audio'; known: text, image"),
    (lambda: picture_model(nn.Identity()), "logits"),
    (lambda: picture_model(nn.Conv2d(1, 2, 3)), "classes="),
    (lambda: te.wrap(vit(), modality="image", classes=["a"]), r"\(1, 4\) for 1 class names"),
    (lambda: te.wrap(in_inference_mode(), tokenizer=wordpiece()), r"torch\.inference_mode"),
    (lambda: te.wrap(AlwaysDropping().eval(), tokenizer=wordpiece()), "dropout is on in eval mode"),
    (lambda: te.wrap(causal(), tokenizer=byte_pairs()), "load_language_model.*explain_answers"),
]


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_objects_that_are_no_models_are_refused_by_name(
    make: Callable[[], Any], words: str
) -> None:
    with pytest.raises(ModelLoadError, match=words):
        make()
