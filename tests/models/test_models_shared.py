"""The real models beside the checkout."""

import io
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from PIL import Image
from tiny_models import Recorder

from transexplain.models.load import load_model
from transexplain.models.loaded_model import Encoded
from transexplain.types.items import Item, PatchGrid

pytestmark = pytest.mark.shared


def test_picture_model_is_as_good_as_it_should_be(shared_dir: Path) -> None:
    model = load_model(shared_dir / "real/models/vit-cifar10")
    items = []
    with ZipFile(shared_dir / "real/images/cifar10_jpg.zip") as archive:
        names = [name for name in archive.namelist() if name.startswith("test/") and "." in name]
        names = names[:: len(names) // 60][:60]
        for index, name in enumerate(names):
            image = Image.open(io.BytesIO(archive.read(name)))
            items.append(Item(id=name, index=index, content=image))
    rows = [one for one in model.encode(items) if isinstance(one, Encoded)]
    assert rows[0].features == PatchGrid(rows=8, cols=8, height=32, width=32, prefix=1)
    with torch.no_grad():
        logits = model.run(model.collate(rows), at="encoder", taps=Recorder())
    right = [name.split("/")[1] for name in names]
    assert len(set(right)) == 10
    predicted = [model.classes[index] for index in logits.argmax(1).tolist()]
    assert sum(a == b for a, b in zip(predicted, right, strict=True)) >= 36
