"""Training examples: which are usable, and how they are split, ordered and cached."""

from pathlib import Path

import pytest
import torch
from tiny_trainings import CLASSES, snapshot, vit_folder, write_pictures, write_texts

from transexplain.errors import ConfigurationError
from transexplain.extras.training.examples import read_examples
from transexplain.extras.training.optimisation import augmented, classified
from transexplain.models.load import load_model


@pytest.fixture
def texts(tmp_path: Path, bert_dir: Path):
    ref = snapshot(str(write_texts(tmp_path / "texts.csv")), tmp_path)
    return read_examples(load_model(bert_dir), ref, labels={})


def test_labels_become_class_indices(texts) -> None:
    assert len(texts) == 48
    assert [one.label for one in texts.entries[:4]] == [0, 1, 2, 0]
    batch = texts.batch([2, 0])
    assert batch.rows == (2, 0)
    assert batch.labels.tolist() == [2, 0]
    assert batch.batch.inputs["input_ids"].shape[0] == 2


def test_an_item_that_cannot_be_used_costs_only_itself(tmp_path: Path, bert_dir: Path) -> None:
    path = write_texts(tmp_path / "texts.csv", labels={3: ""})
    path.write_text(path.read_text() + "empty,,bad\n", encoding="utf-8")
    found = read_examples(load_model(bert_dir), snapshot(str(path), tmp_path), labels={})
    assert len(found) == 47
    kinds = {failure.item_id: failure.kind for failure in found.failures}
    assert kinds == {"3": "no-label", "48": "empty-text"}


def test_a_broken_picture_costs_only_itself(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "pictures", 3)
    (folder / "dark" / "0.png").write_bytes(b"no picture")
    model = load_model(vit_folder(tmp_path / "vit"))
    ref = snapshot(f"imagefolder:{folder}", tmp_path)
    names = {"dark": "LABEL_0", "light": "LABEL_3"}
    found = read_examples(model, ref, labels=names)
    assert [one.label for one in found.entries] == [0, 0, 3, 3, 3]
    assert [failure.kind for failure in found.failures] == ["bad-image"]


def test_a_label_that_is_no_class_is_named(tmp_path: Path, bert_dir: Path) -> None:
    path = write_texts(tmp_path / "texts.csv", labels={5: "dreadful"})
    with pytest.raises(ConfigurationError, match=r"'dreadful'.*labels:.*classes:"):
        read_examples(load_model(bert_dir), snapshot(str(path), tmp_path), labels={})


def test_nothing_to_train_on_is_an_error(tmp_path: Path, bert_dir: Path) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("text,label\nfilm,\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"no item .* can be trained on"):
        read_examples(load_model(bert_dir), snapshot(str(path), tmp_path), labels={})


def test_pictures_for_a_text_model_are_refused(tmp_path: Path, bert_dir: Path) -> None:
    ref = snapshot(f"imagefolder:{write_pictures(tmp_path / 'p', 1)}", tmp_path)
    with pytest.raises(ConfigurationError, match="reads text but dataset"):
        read_examples(load_model(bert_dir), ref, labels={})


def test_every_epoch_has_all_rows_in_its_own_order(texts) -> None:
    first, again, other = (texts.shuffled(7, seed=1, epoch=epoch) for epoch in (0, 0, 1))
    assert first == again != other
    assert first != texts.shuffled(7, seed=2, epoch=0)
    for batches in (first, other):
        assert len(batches) == texts.steps(7) == 7
        assert sorted(row for batch in batches for row in batch) == list(range(48))


def test_similar_lengths_are_together(texts) -> None:
    spread = [
        max(texts.entries[row].length for row in rows)
        - min(texts.entries[row].length for row in rows)
        for rows in texts.shuffled(6, seed=0, epoch=0)
    ]
    assert sum(spread) / len(spread) < 2  # of lengths that differ by up to 7


def test_the_split_goes_by_ids_alone(texts) -> None:
    training, validation = texts.split(0.25, seed=1)
    assert (len(training), len(validation)) == (36, 12)
    held = {one.item.id for one in validation.entries}
    assert not held & {one.item.id for one in training.entries}
    assert held == {one.item.id for one in texts.split(0.25, seed=1)[1].entries}
    assert held != {one.item.id for one in texts.split(0.25, seed=2)[1].entries}
    assert len(texts.split(0.0, seed=1)[1]) == 0
    assert len(texts.split(0.001, seed=1)[1]) == 1


def test_pictures_beyond_the_memory_are_read_again(tmp_path: Path) -> None:
    model = load_model(vit_folder(tmp_path / "vit"))
    ref = snapshot(f"imagefolder:{write_pictures(tmp_path / 'p', 3)}", tmp_path)
    names = {"dark": "0", "light": "1"}
    size = 4 * 3 * 24 * 24
    kept = read_examples(model, ref, labels=names)
    some = read_examples(model, ref, labels=names, kept_bytes=2 * size)
    assert [one.encoded is not None for one in some.entries] == [True, True, *[False] * 4]
    for first, second in zip(kept.in_order(6), some.in_order(6), strict=True):
        assert torch.equal(first.batch.inputs["pixel_values"], second.batch.inputs["pixel_values"])


def test_accuracy_and_loss_do_not_depend_on_the_batches(texts) -> None:
    whole, single = classified(texts.model, texts, 48), classified(texts.model, texts, 1)
    assert whole["accuracy"] == single["accuracy"]
    assert whole["loss"] == pytest.approx(single["loss"], rel=1e-5)
    logits = texts.model.logits(texts.batch(range(48)).batch)
    printed = logits.argmax(dim=1).tolist()
    right = sum(CLASSES.index(CLASSES[row % 3]) == printed[row] for row in range(48))
    assert whole["accuracy"] == right / 48


def test_augmented_pictures_are_mirrored_and_moved() -> None:
    torch.manual_seed(0)
    pictures = torch.arange(8 * 3 * 16 * 16, dtype=torch.float32).reshape(8, 3, 16, 16) + 1
    changed = augmented({"pixel_values": pictures})["pixel_values"]
    assert changed.shape == pictures.shape
    assert not torch.equal(changed, pictures)
    for before, after in zip(pictures, changed, strict=True):
        inside = after[after > 0]
        assert inside.numel() >= 3 * 14 * 14  # moved by 1/8 at most
        assert set(inside.tolist()) <= set(before.flatten().tolist())
    torch.manual_seed(0)
    assert torch.equal(augmented({"pixel_values": pictures})["pixel_values"], changed)
