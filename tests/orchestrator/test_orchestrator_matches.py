"""Groups of every kind through a whole audit, and the sheet of its matches."""

import csv
import json
from pathlib import Path

import pytest
from PIL import Image
from tiny_audit import make_audit, texts

from orchestrator.plan import prepare_audit
from orchestrator.spec import AuditSpec
from transexplain.reports.report_section import merged
from transexplain.settings import Settings
from transexplain.store import results, runs
from transexplain.store.revisions import open_database


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
    code, printed = call("matches", "latest", "--checked", "other.csv")
    assert (code, "which the run does not have" in printed) == (2, True)
    code, printed = call("report", "latest", "--checked", "checked.csv", "--json")
    found = json.loads(printed)["groups"]
    assert (code, found["precision"]["checked"], found["precision"]["correct"]) == (0, 12, praise)
    assert {one["group"]: one["precision"]["precision"] for one in found["matching"]} == {
        "praise": 1.0,
        "things": 0.0,
    }
    code, printed = call("report", "latest", "--checked", "other.csv")
    assert (code, "which the run does not have" in printed) == (2, True)


@pytest.mark.exhaustive
def test_groups_of_spans_and_of_a_column(call, tmp_path: Path) -> None:
    spec = make_audit(tmp_path, items=24, evaluation={"items": 0})
    rows = [
        {
            "text": text,
            "author": ("woman", "man", None)[i % 3],
            "marked": json.dumps([[0, len(text.split()[0]), "first", f"e{i % 6}"]]),
        }
        for i, text in enumerate(texts(24))
    ]
    rows[5]["marked"] = json.dumps([[0, 999, "first"]])
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "texts.jsonl").write_text(lines, encoding="utf-8")
    keys = {
        "data": {"source": "texts.jsonl", "spans": "marked", "meta": ["author"]},
        "groups": {"column": "author", "lexicon": ["groups.json", "builtin:gender"]},
        "tolerance": 0.1,
    }
    document = json.loads(spec.read_text(encoding="utf-8")) | keys
    spec.write_text(json.dumps(document), encoding="utf-8")
    code, printed = call("run", str(spec))
    assert code == 0, printed
    assert "line" not in printed
    report = json.loads(call("report", "--json")[1])
    table = {
        (row["group"], row["class_name"]): row
        for row in report["groups"]["rows"]
        if row["target"] == "contrast:good-bad"
    }
    women = [row for (group, _), row in table.items() if group == "author/woman"]
    assert sum(row["entities"] for row in women) == sum(row["documents"] for row in women) == 8
    first = [row for (group, _), row in table.items() if group == "first"]
    assert (sum(row["mentions"] for row in first), first[0]["entities"]) == (23, 6)
    assert "gender/female" in report["groups"]["never_mentioned"]
    with_text = call("matches", "latest", "--sample", "500", "--out", "sheet.csv")
    assert with_text[0] == 0
    with Path("sheet.csv").open(encoding="utf-8", newline="") as stream:
        groups = {row["group"] for row in csv.DictReader(stream)}
    assert groups == {"first", "things", "praise"}


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


@pytest.mark.exhaustive
def test_a_second_lexicon_counts_apart(call, tmp_path: Path) -> None:
    """It stands for `things` in one robustness row and changes nothing else."""
    spec = make_audit(tmp_path, evaluation={"items": 0})
    lexicon = {"things": ["a", "film", "goods", "x", "e"], "praise": ["nice", "good"]}
    lexicon["praise"] += ["unbelievably", "bad", "fine"]
    (tmp_path / "groups.json").write_text(json.dumps(lexicon), encoding="utf-8")
    (tmp_path / "second.json").write_text(json.dumps({"things": ["film", "x"]}), encoding="utf-8")
    assert call("run", str(spec))[0] == 0
    plain = json.loads(call("report", "--json")[1])["groups"]
    code, printed = call("run", str(spec), "--set", "groups.second=second.json")
    assert code == 0, printed
    with_second = json.loads(call("report", "--json")[1])["groups"]
    with open_database(Settings().database_url) as db:
        run = runs.get(db, "latest")
        assert [group.name for group in run.plan.second] == ["things"]
        found = merged(db, run.id)
    names = {row.entity for row in found.second.rows(found.second.strata)}
    assert names == {"film", "x"}
    mentions = {row.entity: row for row in found.entities.rows(found.entities.strata)}
    for row in found.second.rows(found.second.strata):
        assert (row.mean, row.mentions) == (
            mentions[row.entity].mean,
            mentions[row.entity].mentions,
        )
    for before, after in zip(plain.pop("rows"), with_second.pop("rows"), strict=True):
        if after["group"] == "things":
            assert after["note"].endswith("second lexicon: fewer than 5 entities on a side")
            after["note"] = before["note"]
        assert after == before
    assert with_second == plain


@pytest.mark.exhaustive
def test_mentions_are_ranked_and_their_spread_is_kept(call, tmp_path: Path) -> None:
    spec = make_audit(tmp_path, evaluation={"items": 0})
    assert call("run", str(spec))[0] == 0
    rows = json.loads(call("report", "--json")[1])["groups"]["rows"]
    with open_database(Settings().database_url) as db:
        run = runs.get(db, "latest")
        reported = list(results.iter_mentions(db, run.id))
    for row in rows:
        assert 0.0 < row["rank"] < 1.0
        own = sorted(
            one.relevance
            for one in reported
            if (one.group, one.target, one.class_name)
            == (row["group"], row["target"], row["class_name"])
        )
        middle = own[(len(own) + 1) // 2 - 1]
        assert row["quantiles"]["median"] == pytest.approx(middle, rel=0.005)


@pytest.mark.parametrize(
    ("groups", "data", "says"),
    [
        ({}, {}, "groups names nothing to compare"),
        ({"column": "author"}, {}, "groups.column is 'author', which data.meta does not keep"),
        ({"column": "id"}, {"meta": ["id"]}, "which has 120 different values"),
        ({"lexicon": "groups.json"}, {"spans": "things"}, "group 'things' comes from two places"),
        ({}, {"spans": "empty"}, "no readable item has an entity there"),
        ({"lexicon": "builtin:names"}, {}, "no lexicon builtin:names"),
        ({"lexicon": "groups.json", "include": ["none"]}, {}, "groups.include names 'none'"),
        ({"lexicon": "groups.json", "ambiguous": "maybe"}, {}, "groups.ambiguous"),
        ({"lexicon": "groups.json", "second": "absent.json"}, {}, "absent.json: cannot be read"),
        ({"lexicon": "groups.json", "second": "builtin:gender"}, {}, "has the group 'gender/fem"),
        (
            {"lexicon": "groups.json", "second": "groups.json", "include": ["nobody"]},
            {},
            "groups.include names 'nobody'",
        ),
    ],
)
def test_wrong_groups_are_reported(call, tmp_path: Path, groups, data, says: str) -> None:
    spec = make_audit(tmp_path, items=3)
    rows = [
        {"text": "a film", "id": f"x{i}", "things": '[[0, 1, "things"]]', "empty": None}
        for i in range(120)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "texts.jsonl").write_text(lines, encoding="utf-8")
    document = json.loads(spec.read_text(encoding="utf-8"))
    document |= {"groups": groups, "data": {"source": "texts.jsonl", **data}}
    spec.write_text(json.dumps(document), encoding="utf-8")
    code, printed = call("validate", str(spec))
    assert (code, says in printed) == (2, True), printed


@pytest.mark.exhaustive
def test_regions_of_pictures(call, tmp_path: Path, vit_dir: Path) -> None:
    rows = []
    Image.new("L", (16, 16), 255).save(tmp_path / "mask.png")
    for i in range(6):
        shade = (40 * i, 255 - 40 * i, 90)
        Image.new("RGB", (16, 16), shade).save(tmp_path / f"{i}.png")
        boxes = [[0, 0, 0.5, 1, "left"], [0.5, 0, 1, 1, "right"], ["mask.png", "whole", "all"]]
        rows.append({"file": f"{i}.png", "boxes": boxes, "by": "ab"[i % 2]})
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "pictures.jsonl").write_text(lines, encoding="utf-8")
    document = {
        "name": "regions",
        "model": str(vit_dir),
        "data": {"source": "pictures.jsonl", "image": "file", "spans": "boxes", "meta": ["by"]},
        "groups": {"column": "by"},
        "evaluation": {"items": 0},
    }
    (tmp_path / "audit.yaml").write_text(json.dumps(document), encoding="utf-8")
    code, printed = call("run", "audit.yaml")
    assert code == 0, printed
    with open_database(f"sqlite:///{tmp_path / 'transexplain.db'}", upgrade=False) as store:
        run = runs.get(store, "latest")
        found = list(results.iter_mentions(store, run.id))
        relevance = {
            a.item_id: float(a.relevance.sum()) for a in results.iter_attributions(store, run.id)
        }
    of = {(one.item_id, one.group): one for one in found}
    assert len(of) == len(found) == 6 * 4
    for name, total in relevance.items():
        halves = of[name, "left"].relevance + of[name, "right"].relevance
        assert halves == pytest.approx(of[name, "whole"].relevance, rel=1e-6, abs=1e-9)
        assert halves == pytest.approx(total, rel=1e-2, abs=1e-4)  # stored in float16
        assert of[name, "left"].entity == of[name, f"by/{'ab'[int(name) % 2]}"].entity == name
        assert of[name, "whole"].entity == "all"
    code, printed = call("matches", "latest")
    assert (code, "has no matches in texts" in printed) == (2, True)


def test_lexicons_are_found_from_any_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for lexicon, wanted in (
        (None, None),
        ("g.yaml", (str(tmp_path / "g.yaml"),)),
        (["builtin:gender", "g.csv"], ("builtin:gender", str(tmp_path / "g.csv"))),
    ):
        section = {"lexicon": lexicon, "column": "c"}
        spec = AuditSpec.model_validate({"model": "m", "data": "d.csv", "groups": section})
        groups = spec.absolute().groups
        assert groups is not None
        assert groups.lexicon == wanted
    second = {"lexicon": "builtin:gender", "second": "other.json"}
    spec = AuditSpec.model_validate({"model": "m", "data": "d.csv", "groups": second})
    moved = spec.absolute().groups
    assert moved is not None and moved.second == str(tmp_path / "other.json")


def test_marked_entities_are_groups_without_a_section_of_their_own(call, tmp_path: Path) -> None:
    spec = make_audit(tmp_path, items=3)
    rows = [{"text": "a nice film", "who": [[2, 6, "praise"]]}] * 3
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "texts.jsonl").write_text(lines, encoding="utf-8")
    document = json.loads(spec.read_text(encoding="utf-8"))
    del document["groups"]
    document["data"] = {"source": "texts.jsonl", "spans": "who"}
    prepared = prepare_audit(AuditSpec.model_validate(document), Settings.from_environment())
    assert [(g.name, g.terms, g.source) for g in prepared.plan.groups] == [
        ("praise", (), "marked in the data, column who")
    ]
