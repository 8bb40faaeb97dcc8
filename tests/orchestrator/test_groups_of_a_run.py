"""Families, references and intersections of a specification, from a file to a report."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attribution_rows import write_rows
from entity_recognisers import PEOPLE as KNOWN
from gallery import Audit as Verified
from gallery import run_audit
from secret_texts import KEY, stored_strings
from store_samples import stored_again
from tiny_audit import make_audit, texts
from verified_runs import failed

from orchestrator.plan import prepare_audit
from orchestrator.spec import AuditSpec, load_spec
from orchestrator.spec.data_section import DataSection
from transexplain.analysis.groups.lexicon import SHIPPED, load_pairs
from transexplain.auditing.text_redaction import TextKey
from transexplain.data import item_clusters
from transexplain.data.snapshot import prepare
from transexplain.errors import ConfigurationError
from transexplain.provenance.manifest import manifest_of
from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import summarise
from transexplain.settings import Settings
from transexplain.store import readers, runs
from transexplain.store.revisions import open_database
from transexplain.types.plans import AuditPlan, DatasetSpec, ImpactPlan, Scenario

Call = Callable[..., tuple[int, str]]
NAMES = {
    "gender/female": [f"Fe{letter}" for letter in "abcdefgh"],
    "gender/male": [f"Ma{letter}" for letter in "abcdefgh"],
    "origin/near": [f"Fe{letter}" for letter in "abcd"] + [f"Ma{letter}" for letter in "abcd"],
    "origin/far": [f"Fe{letter}" for letter in "efgh"] + [f"Ma{letter}" for letter in "efgh"],
}
AUTHORS = ("woman", "man")


def rows() -> Iterator[dict[str, Any]]:
    """Every name five times; women who are old wrote one item of 80."""
    names = [*NAMES["gender/female"], *NAMES["gender/male"]] * 5
    for number, name in enumerate(names):
        text = f"{name} came"
        old = number == 0 or number % 4 == 1
        yield {
            "id": str(number),
            "text": text,
            "tokens": text.split(),
            "offsets": [[0, len(name)], [len(name) + 1, len(text)]],
            "scores": [(name[0] == "F") + number / 1000, 0.0],
            "prediction": "good" if name[0] == "F" else "bad",
            "sex": AUTHORS[number % 2],
            "age": "old" if old else "young",
            "gender": AUTHORS[number % 2],
            "author/age": "old" if old else "young",
        }


@pytest.fixture
def imported(call: Call, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    path = write_rows(tmp_path / "rows.jsonl", list(rows()))
    (tmp_path / "names.json").write_text(json.dumps(NAMES))

    def run(*settings: str, lexicon: bool = True) -> tuple[int, str]:
        options = [part for one in settings for part in ("--set", f"groups.{one}")]
        given = ("--lexicon", str(tmp_path / "names.json")) if lexicon else ()
        return call("import", path, "--classes", "bad,good", *given, *options)

    return run


def groups(call: Call) -> dict[str, Any]:
    code, printed = call("report", "latest", "--json")
    assert code == 0, printed
    found: dict[str, Any] = json.loads(printed)["groups"]
    return found


def references(found: dict[str, Any]) -> dict[str, str]:
    return {row["group"]: row["reference"] for row in found["rows"]}


@pytest.mark.exhaustive
def test_columns_meet_and_rare_meetings_are_left_out_by_name(
    call: Call, imported: Callable[..., Any]
) -> None:
    code, printed = imported("column=[sex, age]", "intersections=[[sex, age]]", lexicon=False)
    assert code == 0, printed
    found = groups(call)
    assert sorted({row["group"] for row in found["rows"]}) == [
        "age/old",
        "age/young",
        "sex x age/man x old",
        "sex x age/man x young",
        "sex x age/woman x young",
        "sex/man",
        "sex/woman",
    ]
    assert found["rare"] == [
        {"group": "sex x age/woman x old", "items": 1, "mentions": 1, "share": 1 / 80}
    ]
    assert found["never_mentioned"] == []


@pytest.mark.exhaustive
def test_pairs_are_those_given_else_those_of_the_shipped_lexicon(
    imported: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "pairs.csv").write_text("word,partner\nFea,Maa\n")
    found = []
    for settings in (
        ["pairs=[[Fea, Maa], [Feb, Mab]]"],
        ["pairs=pairs.csv"],
        [],
        ["lexicon=builtin:gender"],
        ["lexicon=builtin:gender", "include=[gender/male]"],
        ["lexicon=builtin:gender", "pairs=[]"],
    ):
        code, printed = imported(*settings)
        assert code == 0, printed
        with open_database("sqlite:///transexplain.db") as db:
            found.append(runs.get(db, "latest").plan)
    inline, file, none, shipped, one_group, given_none = (plan.pairs for plan in found)
    assert inline == (("Fea", "Maa"), ("Feb", "Mab"))
    assert file == (("Fea", "Maa"),)
    assert [Path(one.path).name for one in found[1].lexicons] == ["names.json", "pairs.csv"]
    assert (none, one_group, given_none) == ((), (), ())
    assert shipped == load_pairs(SHIPPED)


@pytest.mark.parametrize(
    ("setting", "printed"),
    [
        ("reference={sex: gender/male}", "the family 'sex'"),
        ("reference={gender: gender/other}", "'gender/other', which is not among the groups used"),
        ("reference={gender: origin/far}", "not of that family: gender/female, gender/male"),
        ("reference=[a, b]", "groups.reference"),
        ("intersections=[[gender]]", "two or more different families"),
        ("intersections=[[gender, gender]]", "two or more different families"),
        ("intersections=[[gender, origin], [origin, gender]]", "each set of them once"),
        ("intersections=[[gender, age]]", "no family 'age'"),
        ("pairs=[[Fea, Nobody]]", "'Nobody' is no term"),
        ("pairs=[[Fea, Feb]]", "both are in gender/female"),
        ("pairs=[[Fea]]", "groups.pairs"),
        ("pairs=nowhere.yaml", "nowhere.yaml: cannot be read"),
        ("column=[sex, mood]", "'mood'"),
        ("column=[sex, sex]", "comes from two places"),
        ("column=gender", "rename 'gender' in the data"),
        ("column=[sex, author/age]", "rename 'author/age' in the data"),
        ("match=fuzzy", "groups.match"),
    ],
)
def test_invalid_groups_are_reported(
    imported: Callable[..., Any], setting: str, printed: str
) -> None:
    code, reported = imported(setting)
    assert code != 0
    assert printed in " ".join(reported.split())


@pytest.mark.exhaustive
def test_a_sheet_and_its_precision(call, tmp_path: Path) -> None:
    spec = make_audit(tmp_path, evaluation={"items": 0})
    lexicon = {"things": ["film", {"term": "goods", "ambiguous": True}], "praise": ["nice", "good"]}
    (tmp_path / "groups.json").write_text(json.dumps(lexicon), encoding="utf-8")
    assert call("run", str(spec))[0] == 0
    code, printed = call("matches", "latest", "--sample", "12", "--out", "sheet.csv")
    assert (code, printed.startswith("12 matches are in sheet.csv")) == (0, True), printed
    count = sum(text.split().count("goods") for text in texts(40))
    assert f"{count} places were left out" in printed
    assert f"goods (things) {count}" in printed
    with Path("sheet.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len({(row["item"], row["start"]) for row in rows}) == 12
    for row in rows:
        text = texts(40)[int(row["item"])]
        assert text[int(row["start"]) : int(row["end"])] == row["match"] == row["entity"]
        row["correct"] = "yes" if row["group"] == "praise" else "no"
    with Path("checked.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    code, printed = call("matches", "latest", "--checked", "checked.csv", "--json")
    whole, *groups = json.loads(printed)
    praise = sum(row["group"] == "praise" for row in rows)
    assert (code, whole["checked"], whole["correct"]) == (0, 12, praise)
    assert {one["group"]: one["precision"] for one in groups} == {"praise": 1.0, "things": 0.0}
    code, printed = call("matches", "latest", "--checked", "checked.csv")
    assert f"all groups: {praise} of 12 are right" in printed
    Path("other.csv").write_text("group,correct\nelse,yes\n", encoding="utf-8")
    assert call("matches", "latest", "--checked", "other.csv")[0] == 2, "a group of another run"
    assert call("report", "latest", "--checked", "other.csv")[0] == 2
    code, printed = call("report", "latest", "--checked", "checked.csv", "--json")
    found = json.loads(printed)["groups"]
    assert (code, found["precision"]["checked"], found["precision"]["correct"]) == (0, 12, praise)
    precisions = {one["group"]: one["precision"]["precision"] for one in found["matching"]}
    assert precisions == {"praise": 1.0, "things": 0.0}


def test_items_and_spellings_that_a_column_leaves_out_are_named(call, tmp_path: Path) -> None:
    spec = make_audit(tmp_path, evaluation={"items": 0})
    authors = ["woman", "Woman", " woman", "man", None, ""]
    rows = [{"text": text, "author": authors[i % 6]} for i, text in enumerate(texts(24))]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "texts.jsonl").write_text(lines, encoding="utf-8")
    document = json.loads(spec.read_text(encoding="utf-8"))
    document |= {"groups": {"column": "author"}}
    document |= {"data": {"source": "texts.jsonl", "meta": ["author"]}}
    prepared = prepare_audit(AuditSpec.model_validate(document), Settings())
    without, alike = [one for one in prepared.warnings if "'author'" in one]
    assert "8 of 24 items" in without
    assert all(repr(value) in alike for value in authors[:3]) and "'man'" not in alike


def cluster_warnings(
    folder: Path, rows: list[tuple[str, ...]], *names: str, **keys: Any
) -> list[str]:
    path = folder / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("text", *names), *rows])
    section = DataSection(source=str(path), **keys)
    ref = prepare(DatasetSpec(**section.model_dump()), folder)
    return list(section.cluster_warnings(ref))


def test_near_duplicates_in_texts_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("one text",), ("One text!",), ("another",), ("and more",), ("too",)]
    (found,) = cluster_warnings(tmp_path, rows)
    assert found.startswith("2 items are near-duplicates of others: 1 cluster, which")
    assert cluster_warnings(tmp_path, rows, duplicates="off") == []
    (found,) = cluster_warnings(tmp_path, rows[:3])
    assert found.startswith("2 of 3 texts nearly repeat one text")
    assert "data.template" in found
    monkeypatch.setattr(item_clusters, "MOST", 2)
    found = cluster_warnings(tmp_path, rows[1:])[-1]
    assert found.startswith("near-duplicates were not looked for: the data have 4 rows")


HARM = "Women are refused more often"
IMPACT: dict[str, Any] = {"favourable": "good", "sex": "who", "ethnicity": "origin"}


def audit_of(folder: Path, groups: dict[str, Any], **keys: Any) -> Path:
    """A small audit whose texts say in columns who wrote them."""
    source = folder / "people.jsonl"
    data = {"source": str(source), "meta": ["who", "origin", "village"]}
    settings = {"groups": groups, "data": data, "evaluation": {"items": 0}, **keys}
    spec = make_audit(folder, **settings)
    rows = (
        {
            "text": text,
            "label": "good",
            "who": ("woman", "man", "Unknown")[i % 3],
            "origin": ("here", "there")[i % 2],
            "village": f"v{i}",
        }
        for i, text in enumerate(texts(40))
    )
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return spec


def planned(folder: Path, groups: dict[str, Any], **keys: Any) -> AuditPlan:
    settings = Settings(
        database_url=f"sqlite:///{folder / 's.db'}", snapshot_dir=folder / "snapshots"
    )
    return prepare_audit(load_spec(audit_of(folder, groups, **keys)), settings).plan


def test_plans_with_filings_are_read_again_as_written(tmp_path: Path) -> None:
    scenario = {"harm": f"  {HARM} ", "owner": "Hiring", "review_date": "2027-02-28"}
    impact = {**IMPACT, "data_source": "made up", "in_use_since": "2025-01-01"}
    plan = planned(tmp_path, {"scenario": scenario, "impact": impact})
    assert plan.scenario == (Scenario(harm=HARM, owner="Hiring", review_date="2027-02-28"),)
    assert plan.impact == ImpactPlan(
        favourable=("good",),
        sex="who",
        ethnicity="origin",
        unknown=("unknown", "n/a", "not given", "prefer not to say"),
        data_source="made up",
        in_use_since="2025-01-01",
    )
    assert plan.groups == (), "nobody has to be mentioned"
    again = stored_again(plan)
    assert again == plan and again.digest == plan.digest


@pytest.mark.parametrize(
    ("impact", "keys", "wanted"),
    [
        ({"sex": "shoe"}, {}, "groups.impact.sex is 'shoe', which data.meta does not keep"),
        ({"ethnicity": "village"}, {}, "'village', which has 40 different categories"),
        ({"unknown": ["woman", "MAN", "unknown"]}, {}, "which has 0 different categories"),
        ({"favourable": "great"}, {}, "unknown class 'great'"),
        ({}, {"store_text": "none"}, "store_text: none"),
    ],
)
def test_columns_and_classes_that_do_not_fit_are_refused(
    tmp_path: Path, impact: dict[str, Any], keys: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(wanted)):
        planned(tmp_path, {"impact": {**IMPACT, **impact}}, **keys)


Audit = Callable[..., Verified]
PERSONS = ("Ann", "Bob", "Cy", "Dora", "Emil", "Fay")
PLACES = ("Iceland", "Finland", "Poland")


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    def made(groups: dict[str, Any], **keys: Any) -> Verified:
        fixed = {"items": 24, "evaluation": {"items": 0}, "targets": ["predicted"]}
        spec = make_audit(tmp_path, groups=groups, **fixed, **keys)
        rows = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
        for number, row in enumerate(rows):
            row["entity"] = ("one", "other")[number % 2]
            row["text"] = f"a film of {PERSONS[number % 6]} in {PLACES[number % 3]} is nice"
        (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return run_audit(spec, tmp_path)

    return made


def test_from_the_specification_to_the_report(audit: Audit) -> None:
    one = audit({"recogniser": KNOWN, "check": 6})
    with open_database(one.url) as db:
        mentions = list(readers.iter_mentions(db, one.id))
        summary = summarise(db, one.id)
        page = render_html(summary)
        manifest = manifest_of(db, one.id)
    assert len(mentions) == 48
    assert {m.group: None for m in mentions}.keys() == {"entity/PERSON", "entity/GPE"}
    assert {m.entity for m in mentions if m.group == "entity/GPE"} == set(map(str.lower, PLACES))
    assert {m.surface for m in mentions if m.group == "entity/PERSON"} == set(PERSONS)
    assert summary.audited.recogniser == "entity_recognisers:people 1"
    rows = {row.group: row for row in summary.groups.matching}
    assert (rows["entity/PERSON"].terms, rows["entity/PERSON"].mentions) == (0, 24)
    assert "found by a named-entity recogniser, entity_recognisers:people 1" in page
    assert "Mentions that the recogniser misses" in page
    planned = manifest.inputs["plan"]["recogniser"]
    assert (planned["source"], planned["types"]) == (KNOWN, ["PERSON", "GPE"])
    assert failed(one.checks()) == []


@pytest.mark.exhaustive
def test_hashed_texts_hold_nothing_that_was_found(
    audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSEXPLAIN_TEXT_KEY", KEY)
    one = audit({"recogniser": KNOWN, "check": 6}, store_text="hashed")
    cells = [cell.lower() for cell in stored_strings(one.url)]
    for name in ("dora", "iceland", "finland"):
        assert not any(name.encode() in cell for cell in cells), name
    with open_database(one.url) as db:
        mentions = list(readers.iter_mentions(db, one.id))
        summarise(db, one.id)
    key = TextKey.from_environment()
    assert {m.entity for m in mentions if m.group == "entity/GPE"} == {
        key.value("entity", place.lower()) for place in PLACES
    }


def test_a_recogniser_that_fails_on_every_text_is_no_run(audit: Audit) -> None:
    with pytest.raises(ConfigurationError):
        audit({"recogniser": "entity_recognisers:broken", "check": 6})
