"""An audit whose mentions a recogniser finds, from the specification to the report."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entity_recognisers
import pytest
from entity_recognisers import PEOPLE
from secret_texts import KEY, stored_strings
from tiny_audit import make_audit
from verified_runs import Run, failed

from orchestrator.dispatch.local import run_local
from orchestrator.plan import prepare_audit
from orchestrator.plan.audit_plan import check_data
from orchestrator.spec import load_spec
from transexplain.auditing.text_redaction import TextKey
from transexplain.errors import ConfigurationError, SpecError
from transexplain.provenance.manifest import manifest_of
from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import summarise
from transexplain.settings import Settings
from transexplain.store import results, runs
from transexplain.store.revisions import open_database
from transexplain.types.items import ItemFailure

Audit = Callable[..., Run]
NAMES = ("Ann", "Bob", "Cy", "Dora", "Emil", "Fay")
PLACES = ("Iceland", "Finland", "Poland")


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    def made(groups: dict[str, Any], **keys: Any) -> Run:
        settings = Settings(
            database_url=f"sqlite:///{tmp_path / 'store.db'}", snapshot_dir=tmp_path / "snapshots"
        )
        spec = make_audit(
            tmp_path,
            items=24,
            groups=groups,
            evaluation={"items": 0},
            targets=["predicted"],
            **keys,
        )
        rows = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
        for number, row in enumerate(rows):
            row["entity"] = ("one", "other")[number % 2]
            row["text"] = f"a film of {NAMES[number % 6]} in {PLACES[number % 3]} is nice"
        (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        prepared = prepare_audit(load_spec(spec), settings)
        with open_database(settings.database_url, upgrade=True) as db:
            run_id = runs.create(db, prepared.plan, prepared.shards)
            run_local(db, run_id, settings, 1, model=prepared.model)
        return Run(folder=tmp_path, url=settings.database_url, id=run_id)

    return made


def test_from_the_specification_to_the_report(audit: Audit) -> None:
    one = audit({"recogniser": PEOPLE, "check": 6})
    with open_database(one.url) as db:
        mentions = list(results.iter_mentions(db, one.id))
        summary = summarise(db, one.id)
        page = render_html(summary)
        manifest = manifest_of(db, one.id)
    assert len(mentions) == 48
    assert {m.group: None for m in mentions}.keys() == {"entity/PERSON", "entity/GPE"}
    assert {m.entity for m in mentions if m.group == "entity/GPE"} == set(map(str.lower, PLACES))
    assert {m.surface for m in mentions if m.group == "entity/PERSON"} == set(NAMES)
    assert summary.audited.recogniser == "entity_recognisers:people 1"
    rows = {row.group: row for row in summary.groups.matching}
    assert (rows["entity/PERSON"].terms, rows["entity/PERSON"].mentions) == (0, 24)
    assert "found by a named-entity recogniser, entity_recognisers:people 1" in page
    assert "Mentions that the recogniser misses" in page
    planned = manifest.inputs["plan"]["recogniser"]
    assert (planned["source"], planned["types"]) == (PEOPLE, ["PERSON", "GPE"])
    assert failed(one.checks()) == []


@pytest.mark.exhaustive
def test_hashed_texts_hold_nothing_that_was_found(
    audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY)
    one = audit({"recogniser": PEOPLE, "check": 6}, store_text="hashed")
    cells = [cell.lower() for cell in stored_strings(one.url)]
    for name in ("dora", "iceland", "finland"):
        assert not any(name.encode() in cell for cell in cells), name
    with open_database(one.url) as db:
        mentions = list(results.iter_mentions(db, one.id))
        summarise(db, one.id)
    key = TextKey.from_environment()
    assert {m.entity for m in mentions if m.group == "entity/GPE"} == {
        key.value("entity", place.lower()) for place in PLACES
    }


@pytest.mark.exhaustive
def test_a_text_that_the_recogniser_fails_on_costs_itself_alone(audit: Audit) -> None:
    one = audit({"recogniser": "entity_recognisers:moody", "check": 6})
    with open_database(one.url) as db:
        failures = [end for end in results.iter_items(db, one.id) if isinstance(end, ItemFailure)]
        mentions = list(results.iter_mentions(db, one.id))
        explained = {each.item_id for each in results.iter_attributions(db, one.id)}
    assert len(failures) == 8 and {end.index % 3 for end in failures} == {2}
    assert {end.kind for end in failures} == {"recogniser-error"}
    assert all("failed with ValueError: not Poland again" in end.message for end in failures)
    assert len(mentions) == 32 and len(explained) == 16
    assert failed(one.checks(items=16)) == []


def test_a_recogniser_that_fails_on_every_text_is_no_run(audit: Audit) -> None:
    with pytest.raises(ConfigurationError, match=r"fails on every text.*no names today"):
        audit({"recogniser": "entity_recognisers:broken", "check": 6})


@pytest.mark.exhaustive
def test_rows_that_the_recogniser_fails_on_are_told_before_a_run(
    audit: Audit, tmp_path: Path
) -> None:
    one = audit({"recogniser": "entity_recognisers:moody", "check": 6})
    settings = Settings(database_url=one.url, snapshot_dir=tmp_path / "snapshots")
    checked = check_data(prepare_audit(load_spec(tmp_path / "audit.yaml"), settings))
    assert checked.failing["recogniser-error"].count == 8
    assert checked.mentions == {"entity/PERSON": 16, "entity/GPE": 16}


@pytest.mark.exhaustive
def test_another_recogniser_than_the_plans_fails_the_check(
    audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = audit({"recogniser": PEOPLE, "check": 6})
    assert one.checks(items=0)["recogniser"].status == "PASS"
    monkeypatch.setattr(
        entity_recognisers.people, "__transexplain_entity_recogniser__", (("PERSON", "GPE"), "2")
    )
    changed = one.checks(items=0)
    assert failed(changed) == ["recogniser"]
    assert f"{PEOPLE} has changed (sha256" in changed["recogniser"].text
    monkeypatch.setenv("TRANSEXPLAIN_RECOGNISER_MODULES", "")
    gone = one.checks(items=0)
    assert failed(gone) == ["recogniser"]
    assert "TRANSEXPLAIN_RECOGNISER_MODULES does not name it" in gone["recogniser"].text


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("groups", "keys", "message"),
    [
        ({"entity_types": ["PERSON"], "lexicon": "builtin:gender"}, {}, "entity_types is for"),
        ({"ambiguous": "recogniser", "lexicon": "builtin:gender"}, {}, "ambiguous: recogniser is"),
        ({"recogniser": PEOPLE}, {"store_text": "none"}, "groups.recogniser is 'entity_rec"),
        ({"recogniser": "spacy:"}, {}, "write spacy:PACKAGE_OR_FOLDER"),
        ({"recogniser": PEOPLE, "entity_types": ["ORG"]}, {}, "names 'ORG', which"),
        ({"recogniser": PEOPLE, "include": ["entity/ORG"]}, {}, "groups.include names"),
    ],
)
def test_wrong_specifications(
    audit: Audit, groups: dict[str, Any], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises((SpecError, ConfigurationError), match=message):
        audit(groups, **keys)


@pytest.mark.exhaustive
def test_a_recogniser_decides_ambiguous_terms_of_a_lexicon(audit: Audit, tmp_path: Path) -> None:
    lexicon = tmp_path / "names.json"
    terms = [{"term": "Dora", "ambiguous": True}, {"term": "film", "ambiguous": True}]
    lexicon.write_text(json.dumps({"names/some": terms}))
    one = audit(
        {
            "lexicon": str(lexicon),
            "recogniser": PEOPLE,
            "entity_types": [],
            "ambiguous": "recogniser",
            "check": 0,
        }
    )
    with open_database(one.url) as db:
        found = {m.surface for m in results.iter_mentions(db, one.id)}
        page = render_html(summarise(db, one.id))
    assert found == {"Dora"}, "`film` is no entity for the recogniser"
    assert "decides which ambiguous names of the lexicons count" in page
