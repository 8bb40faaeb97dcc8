"""The demo's classifiers: quick ones for the plumbing, whole ones (slow) for what they learn."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from orchestrator.demo import text_model
from orchestrator.demo.image_model import ImageDemo, make_image_demo
from orchestrator.demo.text_model import TextDemo, make_text_demo
from transexplain.analysis.groups.lexicon import load_lexicon
from transexplain.models.load import load_model
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Item, ItemFailure


class NoTaps:
    """Runs a model without listening."""

    def input_layer(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def encoder_begins(self) -> None:
        pass


def quick_text(folder: Path, seed: int) -> TextDemo:
    return make_text_demo(folder, seed, training_letters=40, audit_letters=24)


def quick_image(folder: Path, seed: int) -> ImageDemo:
    return make_image_demo(folder, seed, held_out=1700, epochs=1)


@torch.no_grad()
def logits(model: LoadedModel, contents: list) -> np.ndarray:
    """(B, C) in the order of `contents`."""
    found = []
    for start in range(0, len(contents), 100):
        items = [
            Item(id=str(i), index=i, content=content)
            for i, content in enumerate(contents[start : start + 100])
        ]
        encoded = model.encode(items)
        assert not any(isinstance(entry, ItemFailure) for entry in encoded)
        found.append(model.run(model.collate(encoded), at=model.default_at, taps=NoTaps()).numpy())
    return np.concatenate(found)


def rows(demo: TextDemo) -> list[dict[str, str]]:
    with demo.dataset.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def pictures(demo: ImageDemo) -> tuple[list, list[str]]:
    from PIL import Image

    paths = sorted(demo.image_dir.glob("*/*.png"))
    return [Image.open(path).copy() for path in paths], [path.parent.name for path in paths]


@pytest.mark.exhaustive
def test_the_text_demo_opens_with_the_normal_loader(tmp_path: Path) -> None:
    demo = quick_text(tmp_path, seed=0)
    model = load_model(demo.model_dir)
    assert (model.modality, model.classes) == ("text", text_model.CLASSES)
    texts = [row["text"] for row in rows(demo)]
    assert len(texts) == 3 * 24
    assert logits(model, texts).shape == (72, 2)
    groups = {group.name: group for group in load_lexicon(demo.lexicon)}
    assert {demo.planted_group, *demo.unbiased_groups, demo.reference} == set(groups)
    assert len({demo.planted_group, *demo.unbiased_groups, demo.reference}) == 3
    assert not list(demo.model_dir.glob("*.bin"))


def test_every_word_of_a_letter_is_one_token_and_foreign_words_are_spelled(tmp_path: Path) -> None:
    demo = quick_text(tmp_path, seed=0)
    model = load_model(demo.model_dir)
    text = rows(demo)[0]["text"]
    (letter, foreign) = model.encode(
        [Item(id="a", index=0, content=text), Item(id="b", index=1, content="Zebras")]
    )
    plain = [token for token in letter.features if not token.special]
    assert all(text[token.start : token.end] == token.text for token in plain)
    assert len({token.word for token in plain}) == len(plain)
    assert [token.text for token in foreign.features if not token.special] == list("Zebras")


@pytest.mark.exhaustive
def test_the_image_demo_opens_with_the_normal_loader(tmp_path: Path) -> None:
    demo = quick_image(tmp_path, seed=0)
    model = load_model(demo.model_dir)
    assert (model.modality, model.classes) == ("image", tuple("0123456789"))
    contents, labels = pictures(demo)
    assert len(contents) == 1700
    assert set(labels) == set(model.classes)
    (encoded,) = model.encode([Item(id="a", index=0, content=contents[0])])
    grid = encoded.features
    assert (grid.rows, grid.cols, grid.prefix) == (8, 8, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [quick_text, quick_image])
def test_the_seed_decides_the_weights(
    tmp_path: Path, make: Callable[[Path, int], TextDemo | ImageDemo]
) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, again, other = (
        load_file(make(tmp_path / str(i), seed).model_dir / "model.safetensors")
        for i, seed in enumerate((5, 5, 6))
    )
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.exhaustive
def test_the_text_model_reads_and_leans_on_the_planted_names(tmp_path: Path) -> None:
    """Judged without any explanation: accuracy, and the same letters under swapped names."""
    demo = make_text_demo(tmp_path, seed=0)
    model = load_model(demo.model_dir)
    written = rows(demo)
    groups = {group.name: group.terms for group in load_lexicon(demo.lexicon)}
    unbiased = [
        row
        for row in written
        if not any(name in row["text"] for name in groups[demo.planted_group])
    ]
    printed = logits(model, [row["text"] for row in unbiased]).argmax(axis=1)
    right = [model.classes[i] == row["label"] for i, row in zip(printed, unbiased, strict=True)]
    assert np.mean(right) > 0.9
    means = {}
    for group, names in groups.items():
        # every third row is the same letter in the name of the first village
        texts = [row["text"] for row in written[::3]][:40]
        swapped = [
            text.replace(old, name)
            for text in texts
            for old in groups[demo.planted_group]
            if old in text
            for name in names
        ]
        found = logits(model, swapped)
        means[group] = float(np.mean(found[:, 1] - found[:, 0]))
    (one,) = demo.unbiased_groups
    assert means[demo.planted_group] - means[demo.reference] > 0.5
    assert abs(means[one] - means[demo.reference]) < 0.1


@pytest.mark.exhaustive
def test_the_image_model_reads_digits(tmp_path: Path) -> None:
    demo = make_image_demo(tmp_path, seed=0)
    model = load_model(demo.model_dir)
    contents, labels = pictures(demo)
    printed = logits(model, contents).argmax(axis=1)
    right = [model.classes[i] == label for i, label in zip(printed, labels, strict=True)]
    assert np.mean(right) > 0.93
