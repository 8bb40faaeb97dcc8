"""Every way to tamper with a run is found, and the line that fails says where."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from everyday import only
from gallery import Audit
from rewritten_parts import rewrite, with_attributions, with_failures, with_outcome
from typer.testing import CliRunner
from verified_runs import audited, change_plan, execute, failed, flipped, tampered

from orchestrator.cli.command_line import app
from transexplain.store import shard_digests
from transexplain.store.revisions import open_database
from transexplain.store.runs import recorded_shards
from transexplain.types.items import Attribution
from transexplain.types.plans import ShardResult


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return audited(tmp_path_factory.mktemp("tampered"))


def snapshot(run: Audit) -> Path:
    (path,) = (run.folder / "snapshots").glob("*.parquet")
    return path


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("model/model.safetensors", "model files"),
        ("model/config.json", "model files"),
        ("model/tokenizer.json", "model files"),
        ("model/tokenizer_config.json", "model files"),
        ("groups.json", "lexicons"),
        ("texts.jsonl", "dataset files"),
    ],
)
def test_one_byte_of_a_file(run: Audit, name: str, check: str) -> None:
    path = run.folder / name
    data = path.read_bytes()
    # a JSON file stays readable: the digest alone tells
    changed = flipped(data) if name.endswith("safetensors") else data + b" "
    with tampered(path, changed):
        found = run.checks()
    assert check in failed(found)
    assert path.name in found[check].text and "has changed" in found[check].text
    if check == "model files":
        assert "made with another model" in found["model"].text
    else:
        assert failed(found) == [check]


def test_one_byte_of_the_snapshot(run: Audit) -> None:
    path = snapshot(run)
    with tampered(path, flipped(path.read_bytes(), 100)):
        found = run.checks()
    assert found["dataset snapshot"].status == "FAIL"
    assert str(path) in found["dataset snapshot"].text
    assert "TRANSEXPLAIN_SNAPSHOT_DIR" in found["dataset snapshot"].text


def test_a_file_that_joined_the_model(run: Audit) -> None:
    path = run.folder / "model" / "added_tokens.json"
    path.write_text("{}")
    try:
        found = run.checks(items=0)
    finally:
        path.unlink()
    assert failed(found) == ["model files"]
    assert "added_tokens.json is new" in found["model files"].text


def relevance_by_chance(url: str, run_id: str) -> None:
    def doubled(one: Attribution) -> Attribution:
        return replace(one, relevance=2 * one.relevance)

    rewrite(url, run_id, 1, lambda result: with_attributions(result, doubled, 8))


def a_ledger(url: str, run_id: str) -> None:
    def changed(one: Attribution) -> Attribution:
        return replace(one, ledger=replace(one.ledger, biases=one.ledger.biases + 1))

    rewrite(url, run_id, 1, lambda result: with_attributions(result, changed, 8))


def an_item(url: str, run_id: str) -> None:
    def without(result: ShardResult) -> ShardResult:
        kept = tuple(one for one in result.outcomes if one.index != 9)
        return with_failures(replace(result, outcomes=kept))

    rewrite(url, run_id, 1, without)


def a_label(url: str, run_id: str) -> None:
    rewrite(url, run_id, 1, lambda result: with_outcome(result, 11, label="bad"))


def a_mention(url: str, run_id: str) -> None:
    def moved(result: ShardResult) -> ShardResult:
        first, *others = result.mentions
        return replace(result, mentions=(replace(first, relevance=first.relevance + 1e-6), *others))

    rewrite(url, run_id, 1, moved)


def a_plan(url: str, run_id: str) -> None:
    change_plan(url, run_id, practical=0.2)


#: see test_runs_that_are_not_whole for what is lost, doubled or swapped as a whole, and
#: test_store_shard_digests for every column
ROWS = [
    (
        relevance_by_chance,
        {"stored results", "stored relevance", "aggregates", "explained again"},
        "item '8'",
    ),
    (a_ledger, {"stored results", "stored relevance"}, "its ledger adds up to"),
    (an_item, {"stored results", "aggregates"}, "holds 7 explained"),
    (a_label, {"stored results", "aggregates"}, "its predictions are not those"),
    (a_mention, {"stored results", "aggregates"}, "mentions of"),
    (a_plan, {"plan"}, "the stored plan was changed"),
]


@pytest.mark.parametrize(("tamper", "checks", "named"), only(*ROWS[::2], of=ROWS))
def test_one_row_of_the_store(
    run: Audit,
    tmp_path: Path,
    tamper: Callable[[str, str], None],
    checks: set[str],
    named: str,
) -> None:
    url = run.copy_store(tmp_path / "tampered.db")
    assert not failed(run.checks(url, items=20)), "the copy is honest before"
    tamper(url, run.id)
    found = run.checks(url, items=20)
    assert set(failed(found)) >= checks
    assert any(named in found[name].text for name in checks), found


def forge(url: str, run_id: str) -> None:
    """Turn both signs of relevance, and write the digests that the changed rows have.

    Sums of ledgers are left out, so that only the model can tell.
    """

    def turned(one: Attribution) -> Attribution:
        return replace(one, relevance=-one.relevance, ledger=None)

    for index in digests_of(url, run_id):
        rewrite(url, run_id, index, lambda result: with_attributions(result, turned))
    forged = {int(i): text for i, text in digests_of(url, run_id).items()}
    for index, digest in forged.items():
        execute(
            url,
            'UPDATE shard SET digest = :digest WHERE run_id = :id AND "index" = :at',
            digest=digest,
            id=run_id,
            at=index,
        )


def test_relevance_that_was_changed_with_its_digest_is_found_by_explaining(
    run: Audit, tmp_path: Path
) -> None:
    url = run.copy_store(tmp_path / "forged.db")
    forge(url, run.id)
    found = run.checks(url, items=20)
    assert found["stored results"].status == "PASS", "every digest was forged"
    assert "explained again" in failed(found)
    assert "relevance differs by" in found["explained again"].text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.exhaustive
def test_half_precision_is_allowed_another_batch_and_no_forgery(tmp_path: Path, dtype: str) -> None:
    model = {"source": str(tmp_path / "model"), "dtype": dtype}
    made = audited(tmp_path, model=model, targets=["predicted", "top:2", "class:good"])
    for tokens in (1, 10_000):
        found = made.checks(items=20, batch_tokens=tokens)
        assert not failed(found), found
    url = made.copy_store(tmp_path / "forged.db")
    forge(url, made.id)
    found = made.checks(url, items=20)
    assert found["stored results"].status == "PASS", "every digest was forged"
    assert "relevance differs by" in found["explained again"].text
    assert "explained again" in failed(found)


@pytest.mark.parametrize("plan", ["{", "", "5", "null", "[]", "{}", '{"name": 7}'])
def test_a_plan_that_cannot_be_read_fails_by_name(run: Audit, tmp_path: Path, plan: str) -> None:
    url = run.copy_store(tmp_path / "broken.db")
    execute(url, "UPDATE run SET plan = :plan WHERE id = :id", plan=plan, id=run.id)
    found = run.checks(url)
    assert "plan" in failed(found), found
    assert "explained again" not in found
    printed = CliRunner().invoke(app, ["verify", run.id, "--db", url])
    assert printed.exit_code == 1, printed.output
    assert "FAIL  plan:" in printed.output


def digests_of(url: str, run_id: str) -> dict[int, str]:
    """The digests of what the tables hold."""
    with open_database(url) as db, db.read() as connection:
        return {
            recorded.index: shard_digests.held_digest(connection, run_id, recorded)
            for recorded in recorded_shards(db, run_id)
        }
