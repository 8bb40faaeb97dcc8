"""The real models beside the checkout."""

import csv
import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from PIL import Image
from tiny_models import Recorder

from transexplain.models.load import load_model
from transexplain.models.loaded_model import Encoded, LoadedModel
from transexplain.types.items import Item, PatchGrid

pytestmark = pytest.mark.shared


def predict(model: LoadedModel, items: list[Item]) -> list[str]:
    rows = [one for one in model.encode(items) if isinstance(one, Encoded)]
    assert len(rows) == len(items)
    names: list[str] = []
    with torch.no_grad():
        for start in range(0, len(rows), 20):
            batch = model.collate(rows[start : start + 20])
            logits = model.run(batch, at="encoder", taps=Recorder())
            names.extend(model.classes[index] for index in logits.argmax(1).tolist())
    return names


@pytest.mark.exhaustive
def test_sentiment_model_is_as_good_as_it_should_be(shared_dir: Path) -> None:
    model = load_model(shared_dir / "real/models/minilm-sst2")
    assert model.classes == ("negative", "positive")
    assert {parameter.dtype for parameter in model.module.parameters()} == {torch.float32}
    with gzip.open(shared_dir / "real/text/sst2_dev.tsv.gz", "rt", encoding="utf-8") as file:
        lines = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:100]
    items = [Item(id=str(n), index=n, content=line["text"]) for n, line in enumerate(lines)]
    reported = predict(model, items)
    wanted = [model.classes[int(line["label"])] for line in lines]
    assert sum(a == b for a, b in zip(reported, wanted, strict=True)) >= 80
    for one in model.encode(items):
        assert isinstance(one, Encoded)
        assert isinstance(one.features, Sequence)
        for token in one.features[1:-1]:
            assert token.text == one.item.content[token.start : token.end]


def test_picture_model_is_as_good_as_it_should_be(shared_dir: Path) -> None:
    model = load_model(shared_dir / "real/models/vit-cifar10")
    items, wanted = [], []
    with ZipFile(shared_dir / "real/images/cifar10_jpg.zip") as archive:
        names = [name for name in archive.namelist() if name.startswith("test/") and "." in name]
        for index, name in enumerate(names[:: len(names) // 60][:60]):
            image = Image.open(io.BytesIO(archive.read(name)))
            items.append(Item(id=name, index=index, content=image))
            wanted.append(name.split("/")[1])
    [first, *_] = model.encode(items)
    assert isinstance(first, Encoded)
    assert first.features == PatchGrid(rows=8, cols=8, height=32, width=32, prefix=1)
    reported = predict(model, items)
    assert len(set(wanted)) == 10
    assert sum(a == b for a, b in zip(reported, wanted, strict=True)) >= 36
