"""Invalid keys, hooks and specifications are refused by name, before anything is read."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from plain_records import new_plan
from secret_texts import KEY, REDACT, secret_audit

from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.auditing.text_redaction import TextKey, blanked, guard_of, widened
from transexplain.errors import ConfigurationError, TransExplainError
from transexplain.settings import Settings
from transexplain.store import runs, shards
from transexplain.store.revisions import open_database
from transexplain.text.privacy import load_hook
from transexplain.types.observer import NO_CAUTION
from transexplain.types.plans import AuditPlan, PrivacyPlan, Shard
from workers.claim_to_commit import Workbench, compute


def plan_of(privacy: PrivacyPlan | None) -> AuditPlan:
    return new_plan(privacy=privacy)


@pytest.mark.parametrize(
    ("given", "printed"),
    [(None, "is not set"), ("short", "has 5 bytes"), (KEY, "key of this")],
)
def test_an_invalid_key_is_named_and_not_shown(monkeypatch, given: str | None, printed: str):
    monkeypatch.delenv("TRANSEXPLAIN_TEXT_KEY", raising=False)
    if given is not None:
        monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", given)
    other = TextKey(b"another key of enough bytes").fingerprint
    with pytest.raises(ConfigurationError, match=printed) as caught:
        guard_of(plan_of(PrivacyPlan(store_text="hashed", key=other)))
    assert "TRANSEXPLAIN_TEXT_KEY" in str(caught.value)
    assert given is None or given not in str(caught.value)
    assert "another" not in repr(TextKey(b"another key of enough bytes"))


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("secret_texts", "write it as"),
        ("secret_texts:names()", "write it as"),
        ("secret_texts.absent:names", "cannot be imported"),
        ("secret_texts:nobody", "has no function"),
        ("secret_texts:unmarked", "is not marked"),
        ("secret_texts_2:names", "is not imported"),
        ("builtins:eval", "is not imported"),
    ],
)
def test_an_invalid_hook_is_refused(name: str, printed: str) -> None:
    with pytest.raises(ConfigurationError, match=printed):
        load_hook(name)


def test_spans_reach_to_the_ends_of_their_words() -> None:
    assert widened("ab cde, fg", [(4, 5), (9, 9)]) == ((3, 6),)
    assert widened("ab cde", [(1, 4)]) == ((0, 6),)
    assert widened("ab", []) == ()
    assert blanked("ab cde", ((3, 6),), "x") == "ab xxx"


@pytest.mark.parametrize("keys", [{"store_text": "none"}, {"redact": REDACT}])
def test_entities_that_the_data_name_need_hashes(tmp_path: Path, keys: dict[str, Any]) -> None:
    data = {"source": str(tmp_path / "texts.jsonl"), "spans": "marked"}
    spec = load_spec(secret_audit(tmp_path, **keys)).model_copy(deep=True)
    spec = spec.model_copy(update={"data": spec.data.model_copy(update=data)})
    with pytest.raises(ConfigurationError, match="store_text: hashed"):
        prepare_audit(spec, Settings(snapshot_dir=tmp_path / "snapshots"))


def test_a_worker_without_the_key_computes_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY)
    settings = Settings(
        database_url=f"sqlite:///{tmp_path / 'store.db'}", snapshot_dir=tmp_path / "snapshots"
    )
    prepared = prepare_audit(load_spec(secret_audit(tmp_path, store_text="hashed")), settings)
    assert KEY not in json.dumps(prepared.plan.document())
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY[::-1])
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        assert Workbench(db=db, settings=settings).work(run_id) == "failed"
        (first, *_) = shards.list_shards(db, run_id)
        assert "key of this" in str(first.error)
        assert runs.progress(db, run_id).items_done == 0


def test_an_error_of_a_shard_does_not_reveal_its_text(tmp_path, monkeypatch) -> None:
    import transexplain.auditing.explained_shard

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("cannot read zyxhaldane")

    monkeypatch.setattr(transexplain.auditing.explained_shard, "StagedItems", broken)
    for privacy, wanted in (
        (PrivacyPlan(store_text="none"), "RuntimeError: not stored (store_text: none)"),
        (PrivacyPlan(redact=REDACT), "RuntimeError: cannot read ██████████"),
    ):
        with pytest.raises(TransExplainError) as caught:
            compute(
                plan_of(privacy),
                Shard(index=0, start=0, stop=1),
                object(),
                observer=None,
                caution=NO_CAUTION,
                items=(),
            )
        assert str(caught.value) == wanted
        assert sys.exc_info()[1] is None
