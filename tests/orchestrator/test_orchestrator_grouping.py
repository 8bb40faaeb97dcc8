"""Families, references and intersections of a specification, from a file to a report."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attribution_rows import write_rows

from transexplain.analysis.groups.lexicon import SHIPPED, load_pairs
from transexplain.reports.report_formats import render_html
from transexplain.reports.summary import summarise
from transexplain.store import runs
from transexplain.store.revisions import open_database

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
def test_each_family_has_its_reference(call: Call, imported: Callable[..., Any]) -> None:
    code, printed = imported("reference={gender: gender/male}")
    assert code == 0, printed
    found = groups(call)
    assert references(found) == {
        "gender/female": "gender/male",
        "gender/male": "gender/male",
        "origin/far": "all other groups of origin",
        "origin/near": "all other groups of origin",
    }
    assert found["reference"] == "their references"
    with open_database("sqlite:///transexplain.db") as db:
        assert runs.get(db, "latest").plan.reference == {"gender": "gender/male"}
        page = render_html(summarise(db, "latest"))
    assert "against <bdi>all other groups of origin" in re.sub("<wbr>|\u200b|&#8203;", "", page)


@pytest.mark.exhaustive
def test_terms_of_two_lexicons_meet(call: Call, imported: Callable[..., Any]) -> None:
    code, printed = imported("intersections=[[gender, origin]]")
    assert code == 0, printed
    found = groups(call)
    met = {row["group"]: row for row in found["rows"] if " x " in row["group"]}
    assert sorted(met) == [
        f"gender x origin/{one}"
        for one in ("female x far", "female x near", "male x far", "male x near")
    ]
    assert {row["entities"] for row in met.values()} == {4}
    assert {row["reference"] for row in met.values()} == {"all other groups of gender x origin"}


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
    with open_database("sqlite:///transexplain.db") as db:
        page = render_html(summarise(db, "latest"))
    assert "under 2 % of the mentions of their family: <bdi>sex x age/woman x old</bdi>" in page


@pytest.mark.exhaustive
def test_a_reference_that_is_never_mentioned_is_reported(
    call: Call, imported: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "names.json").write_text(json.dumps({**NAMES, "gender/other": ["Nobody"]}))
    code, printed = imported("reference={gender: gender/other}")
    assert code == 0, printed
    code, reported = call("report", "latest", "--json")
    printed = [one["text"] for one in json.loads(reported)["headline"]]
    assert "Nothing was compared with gender/other: the reference is never mentioned." in printed
    assert {row["difference"] for row in groups(call)["rows"] if "gender" in row["group"]} == {None}


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


@pytest.mark.exhaustive
def test_pairs_and_intersections_change_the_digest(imported: Callable[..., Any]) -> None:
    code, printed = imported()
    assert code == 0, printed
    with open_database("sqlite:///transexplain.db") as db:
        plan = runs.get(db, "latest").plan
    digest = plan.digest
    assert replace(plan, pairs=(("Fea", "Maa"),)).digest != digest
    assert replace(plan, intersections=(("gender", "origin"),)).digest != digest


@pytest.mark.parametrize(
    ("setting", "printed"),
    [
        ("reference={sex: gender/male}", "names the family 'sex', but the families of the groups"),
        ("reference={gender: gender/other}", "'gender/other', which is not among the groups used"),
        ("reference={gender: origin/far}", "not of that family: gender/female, gender/male"),
        ("reference=[a, b]", "groups.reference"),
        ("intersections=[[gender]]", "two or more different families"),
        ("intersections=[[gender, gender]]", "two or more different families"),
        ("intersections=[[gender, origin], [origin, gender]]", "each set of them once"),
        ("intersections=[[gender, age]]", "there is no family 'age'; those of the groups used"),
        ("pairs=[[Fea, Nobody]]", "groups.pairs: the pair [Fea, Nobody]: 'Nobody' is no term"),
        ("pairs=[[Fea, Feb]]", "both are in gender/female"),
        ("pairs=[[Fea]]", "groups.pairs"),
        ("pairs=nowhere.yaml", "nowhere.yaml: cannot be read"),
        ("column=[sex, mood]", "'mood'"),
        ("column=[sex, sex]", "comes from two places"),
        ("column=gender", "rename 'gender' in the data"),
        ("column=[sex, author/age]", "rename 'author/age' in the data"),
    ],
)
def test_invalid_groups_are_reported(
    imported: Callable[..., Any], setting: str, printed: str
) -> None:
    code, reported = imported(setting)
    assert code != 0
    assert printed in " ".join(reported.split())


def test_columns_and_lexicons_do_not_meet(imported: Callable[..., Any]) -> None:
    code, reported = imported("column=sex", "intersections=[[gender, sex]]")
    assert code != 0
    assert "sex is a column of whole items" in " ".join(reported.split())
