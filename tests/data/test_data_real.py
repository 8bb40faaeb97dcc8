"""Real files: as many items as their README counts, no more and no fewer."""

from collections import Counter
from pathlib import Path

import pytest

from transexplain.types.items import Item

pytestmark = pytest.mark.shared


@pytest.fixture
def real(shared_dir: Path) -> Path:
    return shared_dir / "real"


@pytest.mark.parametrize(
    ("name", "rows", "failed"),
    [
        ("tweeteval_sentiment_val", 2000, 0),
        pytest.param("tweeteval_hate_train", 9000, 7, marks=pytest.mark.exhaustive),
        ("sst2_dev", 872, 0),
        pytest.param("sst2_train", 67349, 0, marks=pytest.mark.exhaustive),
        pytest.param("agnews_train10k", 10001, 0, marks=pytest.mark.exhaustive),
    ],
)
def test_tsv(name, rows, failed, real, load):
    items = load(real / "text" / f"{name}.tsv.gz", shard_size=4096)
    assert len(items) == rows
    assert sum(not isinstance(item, Item) for item in items) == failed
    assert all(item.label for item in items if isinstance(item, Item))


def test_stray_quotes_stay_in_the_tweets(real, load):
    items = load(real / "text" / "tweeteval_sentiment_val.tsv.gz")
    assert sum(item.content.count('"') % 2 for item in items) > 50


@pytest.mark.exhaustive
def test_jsonl(real, load):
    folder = real / "text" / "eraser_movies"
    reviews = load(folder / "docs.jsonl.gz", id="docid")
    assert len(reviews) == 1801
    assert all(isinstance(item, Item) for item in reviews)
    assert max(len(item.content) for item in reviews) > 10_000
    options = {"text": "query", "label": "classification", "id": "annotation_id"}
    both = load(folder / "[tv]*.jsonl.gz", **options)
    assert Counter(item.label for item in both) == {"POS": 900, "NEG": 900}


def test_image_folder_beside_its_labels(real, load):
    items = load(f"imagefolder:{real}/images/imagenet_samples")
    assert len(items) == 320
    assert {(item.content.mode, item.label) for item in items} == {("RGB", None)}
    named = load(real / "images" / "imagenet_samples" / "labels.tsv", image="file")
    assert {item.source for item in named} == {item.id for item in items}
    assert all(item.label for item in named)
