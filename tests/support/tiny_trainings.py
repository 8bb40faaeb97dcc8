"""Tiny trainings: models saved as users save theirs, and data that they can learn."""

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from PIL import Image
from tiny_models import bert, vit, wordpiece

from transexplain.data.snapshot import prepare
from transexplain.extras.training.training_plans import (
    FitObserver,
    FitPlan,
    Optimisation,
    Stages,
    TrainingPlan,
)
from transexplain.types.plans import DatasetRef, DatasetSpec

CLASSES = ("bad", "so-so", "good")
_TEXTS = ("un [ film", "a nice x", "goods film")
_COLOURS = {"dark": 30, "light": 220}


def bert_folder(folder: Path, layers: int = 5) -> Path:
    """A BERT of `layers` layers with three classes and dropout."""
    names = dict(enumerate(CLASSES))
    bert(id2label=names, num_hidden_layers=layers).save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return folder


def vit_folder(folder: Path) -> Path:
    """A ViT of four classes with dropout, and its processor."""
    vit(hidden_dropout_prob=0.1).save_pretrained(folder)
    size = {"height": 24, "width": 24}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)
    return folder


def write_texts(path: Path, count: int = 48, labels: Mapping[int, str | None] = {}) -> Path:
    """Short texts of several lengths whose class is in their words."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "text", "label"))
        for number in range(count):
            text = _TEXTS[number % 3] + " a" * (number % 5)
            writer.writerow((f"t{number}", text, labels.get(number, CLASSES[number % 3])))
    return path


def write_pictures(folder: Path, count: int = 12) -> Path:
    """Dark and light noise in folders of these names."""
    rng = np.random.default_rng(0)
    for name, level in _COLOURS.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            noise = rng.integers(-25, 25, (24, 24, 3)) + level
            Image.fromarray(noise.astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder


def snapshot(source: str, folder: Path) -> DatasetRef:
    """The data as a plan holds it."""
    return prepare(DatasetSpec(source=source), folder / "snapshots")


def text_plan(folder: Path, **fields: Any) -> TrainingPlan:
    """Five epochs of six steps: head, three stages of layers, embeddings."""
    model = folder / "bert"
    if not model.is_dir():
        bert_folder(model)
    data = folder / "texts.csv"
    if not data.is_file():
        write_texts(data)
    plan = TrainingPlan(
        source=str(model),
        dataset=snapshot(str(data), folder),
        output=folder / "out",
        fit=FitPlan(epochs=5, batch_size=8, seed=3),
        stages=Stages(),
        optimisation=Optimisation(learning_rate=5e-3),
    )
    return replace(plan, **fields)


def image_plan(folder: Path, **fields: Any) -> TrainingPlan:
    """Three epochs of pictures with a fresh head of two classes, augmented."""
    model = folder / "vit"
    if not model.is_dir():
        vit_folder(model)
    data = folder / "pictures"
    if not data.is_dir():
        write_pictures(data)
    plan = TrainingPlan(
        source=str(model),
        dataset=snapshot(f"imagefolder:{data}", folder),
        output=folder / "out",
        fit=FitPlan(epochs=3, batch_size=5, seed=3),
        classes=("dark", "light"),
        stages=None,
        optimisation=Optimisation(learning_rate=3e-3, augment=True, label_smoothing=0.05),
    )
    return replace(plan, **fields)


class StopAt(FitObserver):
    """Ends a training after so many steps, and notes what it hears."""

    def __init__(self, step: int | None = None) -> None:
        self.at = step
        self.steps: list[int] = []
        self.losses: list[float] = []
        self.epochs: list[int] = []

    def stepped(self, step: int, steps: int, losses: Mapping[str, float]) -> None:
        self.steps.append(step)
        self.losses.append(losses.get("loss", 0.0))

    def validated(self, epoch: int, metrics: Mapping[str, float]) -> None:
        self.epochs.append(epoch)

    def should_stop(self) -> bool:
        return self.at is not None and bool(self.steps) and self.steps[-1] >= self.at
