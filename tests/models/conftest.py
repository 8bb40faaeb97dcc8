"""Model directories made on the spot."""

from pathlib import Path

import pytest
import transformers
from models_fixtures import bert, vit, wordpiece


@pytest.fixture
def bert_dir(tmp_path: Path) -> Path:
    """A directory with a tiny BERT classifier of three named classes and its tokenizer."""
    folder = tmp_path / "bert"
    bert(id2label={0: "bad", 1: "so-so", 2: "good"}).save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    return folder


@pytest.fixture
def vit_dir(tmp_path: Path) -> Path:
    """A directory with a tiny ViT classifier and its image processor."""
    folder = tmp_path / "vit"
    vit().save_pretrained(folder)
    size = {"height": 24, "width": 24}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)
    return folder
