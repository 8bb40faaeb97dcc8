"""Versions of a real sentiment model over the same 200 sentences."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.dispatch.local import run_here
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.reports.runs_compared import DriftSummary, compare_runs
from transexplain.settings import Settings
from transexplain.store import results, runs
from transexplain.store.database import Database
from transexplain.store.revisions import open_database
from transexplain.types.items import ItemOutcome

pytestmark = [pytest.mark.shared, pytest.mark.exhaustive]

ROWS = 200
#: nothing is claimed of them: words that these reviews hold often, in two groups
LEXICON = {
    "film words": ["film", "movie", "story", "plot", "characters", "comedy", "director", "drama"],
    "small words": ["the", "and", "of", "with", "for", "from", "into", "about"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("versions")


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[Database]:
    with open_database(f"sqlite:///{folder / 'store.db'}", upgrade=True) as database:
        yield database


def audit(store: Database, folder: Path, shared: Path, model: Path, shard_size: int = 64) -> str:
    lexicon = folder / "groups.json"
    lexicon.write_text(json.dumps(LEXICON), encoding="utf-8")
    spec: dict[str, Any] = {
        "model": str(model),
        "data": {"source": str(shared / "real/text/sst2_dev.tsv.gz"), "limit": ROWS},
        "labels": {"0": "negative", "1": "positive"},
        "targets": ["predicted", "contrast:positive-negative"],
        "groups": {"lexicon": str(lexicon), "reference": "small words"},
        "shard_size": shard_size,
        "evaluation": {"items": 0},
    }
    settings = Settings(
        database_url=f"sqlite:///{folder / 'store.db'}", snapshot_dir=folder / "snapshots"
    )
    prepared = prepare_audit(load_spec(None, spec), settings)
    run_id = runs.create(store, prepared.plan, prepared.shards)
    run_here(store, run_id, settings, model=prepared.model)
    return run_id


def version(folder: Path, original: Path, name: str, factor: float, noise: float) -> Path:
    """The model with its classifier scaled by `factor` and disturbed by `noise` of its spread."""
    import torch
    from safetensors.torch import load_file, save_file

    target = folder / name
    shutil.copytree(original, target, ignore=shutil.ignore_patterns("*.safetensors"))
    weights = load_file(original / "model.safetensors")
    random = torch.Generator().manual_seed(4)
    for key in ("classifier.weight", "classifier.bias"):
        kept = weights[key].float()
        drawn = torch.randn(kept.shape, generator=random) * kept.std()
        weights[key] = factor * kept + noise * drawn
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target


@pytest.fixture(scope="module")
def original(shared_dir: Path) -> Path:
    return shared_dir / "real/models/minilm-sst2"


@pytest.fixture(scope="module")
def before(store: Database, folder: Path, shared_dir: Path, original: Path) -> str:
    return audit(store, folder, shared_dir, original)


def contrast(found: DriftSummary) -> Any:
    (change,) = [one for one in found.changes if one.target.startswith("contrast")]
    return change


def test_the_same_model_in_other_shards_did_not_move(
    store: Database, folder: Path, shared_dir: Path, original: Path, before: str
) -> None:
    found = compare_runs(store, before, audit(store, folder, shared_dir, original, 17))
    assert (found.predictions.common, found.predictions.changed) == (ROWS, 0)
    # other shards are other batches: float32 sums differ in their last bits
    assert contrast(found).logit_change_size < 1e-5
    assert contrast(found).agreement.mean > 0.999
    assert found.groups is not None
    assert {row.verdict for row in found.groups.shifts} == {"equivalent"}
    assert all(one.before == one.after for one in found.groups.transitions)


def test_a_classifier_with_doubled_logits_keeps_every_rank(
    store: Database, folder: Path, shared_dir: Path, original: Path, before: str
) -> None:
    loud = version(folder, original, "loud", 2.0, 0.0)
    found = compare_runs(store, before, audit(store, folder, shared_dir, loud))
    assert found.predictions.changed == 0
    assert contrast(found).logit_after == pytest.approx(2 * contrast(found).logit_before, rel=1e-4)
    assert contrast(found).agreement.mean > 0.999
    assert found.groups is not None
    for row in found.groups.shifts:
        assert row.after == pytest.approx(2 * row.before, rel=1e-3, abs=1e-5)


def predictions(model: Path, texts: list[str]) -> list[int]:
    """What transformers itself predicts."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    network = AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    with torch.no_grad():
        found = [
            network(**tokenizer(text, return_tensors="pt")).logits.argmax().item() for text in texts
        ]
    return [int(one) for one in found]


def test_a_disturbed_classifier_is_found(
    store: Database, folder: Path, shared_dir: Path, original: Path, before: str
) -> None:
    other = version(folder, original, "disturbed", 1.0, 20.0)
    found = compare_runs(store, before, audit(store, folder, shared_dir, other))
    outcomes = [one for one in results.iter_items(store, before) if isinstance(one, ItemOutcome)]
    texts = [str(one.text) for one in outcomes]
    labels = [("negative", "positive").index(str(one.label)) for one in outcomes]
    old, new = predictions(original, texts), predictions(other, texts)
    flips = sum(a != b for a, b in zip(old, new, strict=True))
    assert found.predictions.changed == flips > 0
    assert found.predictions.right_before == sum(map(int.__eq__, old, labels))
    assert found.predictions.right_after == sum(map(int.__eq__, new, labels))
    assert found.predictions.p is not None and found.predictions.p < 0.05
    change = contrast(found)
    assert change.agreement.mean < 0.99
    assert change.agreement.interval[1] < 1.0
    assert change.logit_change_size > 0.1
    assert not found.disparities
    # explanations of `predicted` have a pair where the prediction held
    held = [one.items for one in found.changes if one.target == "predicted"]
    assert (sum(held), found.other_class) == (ROWS - flips, flips)
