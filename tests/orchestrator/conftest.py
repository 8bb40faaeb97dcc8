"""Model directories made on the spot."""

from pathlib import Path

import pytest
import transformers
from models_fixtures import vit


@pytest.fixture
def vit_dir(tmp_path: Path) -> Path:
    """A directory with a tiny ViT classifier and its image processor."""
    folder = tmp_path / "vit"
    vit().save_pretrained(folder)
    size = {"height": 24, "width": 24}
    transformers.ViTImageProcessor(size=size).save_pretrained(folder)
    return folder
