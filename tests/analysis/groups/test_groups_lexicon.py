import gzip
from pathlib import Path

import pytest

from transexplain.analysis.groups.lexicon import load_lexicon
from transexplain.errors import LexiconError
from transexplain.types.items import EntityGroup


def write(folder: Path, content: str, name: str = "groups.yaml") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_both_forms_of_a_group(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "rivers: [Rhine, Rio  Grande, Rhine]\n"
        "towns:\n  source: a map\n  terms:\n    - São Paulo\n    - 'Yes'\n",
    )
    assert load_lexicon(path) == (
        EntityGroup(name="rivers", terms=("Rhine", "Rio Grande")),
        EntityGroup(name="towns", terms=("São Paulo", "Yes"), source="a map"),
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "mapping of group"),
        ("- a\n- b\n", "mapping of group"),
        ("a: []\n", "'a' needs"),
        ("a: Rhine\n", "'a' needs"),
        ("a: {source: s}\n", "'a' needs"),
        ("a: {terms: [x], sorce: s}\n", "unknown keys ['sorce']"),
        ("a: {terms: [x], source: 3}\n", "group 'a'"),
        ("a: [No]\n", "False was read"),
        ("a: [1984]\n", "1984 was read"),
        ("a: ['  ']\n", "empty term"),
        ("2020: [x]\n", "group name 2020"),
        ("a: [x]\na: [y]\n", "'a' is given"),
        ("? [a, b]\n: [x]\n", "cannot be a name"),
        ("a: [{term: x, ambigous: true}]\n", "unknown keys ['ambigous']"),
        ("a: [{entity: x}]\n", "lacks `term`"),
        ("a: [{term: x, ambiguous: often}]\n", "ambiguous is 'often'"),
        ("a: [{entity: x, terms: []}]\n", "needs an entity"),
        ("a: [{terms: [y]}]\n", "needs an entity"),
        ("a: [{entity: No, terms: [y]}]\n", "False was read"),
        ("a: [{term: x, entity: y}, x]\n", "stands for 'y'"),
        ("a: [x\n", "expected ','"),
        ("a: !!python/object:os.system [x]\n", "read here"),
    ],
)
def test_a_wrong_file_is_named_with_its_fault(tmp_path: Path, content: str, says: str) -> None:
    refused(tmp_path / "groups.yaml", content.encode(), says)


def refused(path: Path, data: bytes, says: str) -> None:
    path.write_bytes(data)
    with pytest.raises(LexiconError) as caught:
        load_lexicon(path)
    assert str(path) in str(caught.value) and says in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("g.txt", b"a", "plain or .gz"),
        ("g.yaml", b"a: [\xff]", "UTF-8"),
        ("g.json.gz", b"{}", "cannot be read"),
        ("g.json.gz", gzip.compress(b'{"a": ["x"]}' * 99, mtime=0)[:-12], "cannot be read"),
        ("g.json", b'{"a": ', "Expecting value"),
        ("g.json", b'{"a": ["x"], "a": ["y"]}', "'a' is given"),
        ("g.json", b"[" * 100_000, "more than 64"),
        # tables: the line is named
        ("g.csv", b"group,word\na,b\n", "line 1 names"),
        ("g.csv", b"group,term,term\na,b,b\n", "each once"),
        ("g.csv", b"", "line 1 names"),
        ("g.csv", b"group,term\na,b,c\n", "2 has 3"),
        ("g.csv", b"group,term\na,b\n\na,\n", "line 4"),
        ("g.csv", b"group,term,ambiguous\na,b,perhaps\n", "ambiguous is 'perhaps'"),
        ("g.csv", b'group,term\na,"b\n', "unexpected end"),
        ("g.csv", b"group,term\n", "expected a mapping"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    refused(tmp_path / name, data, says)


def test_flags_and_several_spellings_of_one_entity(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "g:\n"
        "  - {term: Bo, ambiguous: true}\n"
        "  - {term: Will, ambiguous: false}\n"
        "  - {term: Mark}\n"
        "  - China\n"
        "  - will\n"
        "  - {entity: United States, terms: [USA, U.S., {term: US, ambiguous: place}]}\n",
    )
    (group,) = load_lexicon(path)
    assert group.terms == ("Bo", "Will", "Mark", "China", "will", "USA", "U.S.", "US")
    assert group.entities == dict.fromkeys(("USA", "U.S.", "US"), "United States")
    assert group.ambiguous == {"Bo": "name", "Mark": "name", "China": "place", "US": "place"}


TABLE = """group,term,entity,ambiguous,source
towns,New York,,,a map
towns,"Washington, D.C.",Washington,,another map
towns,Bath,,no,
rivers,Rhine,,yes,a map
rivers,Rhein,Rhine,,a map
"""


@pytest.mark.parametrize("name", ["g.csv", "g.tsv", "g.csv.gz"])
def test_tables(tmp_path: Path, name: str) -> None:
    rows = TABLE
    if "tsv" in name:
        rows = rows.replace(",", "\t").replace('"Washington\t D.C."', "Washington, D.C.")
    path = tmp_path / name
    data = ("\ufeff" + rows).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    towns, rivers = load_lexicon(path)
    assert towns == EntityGroup(
        name="towns",
        terms=("New York", "Washington, D.C.", "Bath"),
        source="a map; another map",
        entities={"Washington, D.C.": "Washington"},
    )
    assert rivers == EntityGroup(
        name="rivers",
        terms=("Rhine", "Rhein"),
        source="a map",
        entities={"Rhein": "Rhine"},
        ambiguous={"Rhine": "name"},
    )


@pytest.mark.parametrize("name", ["gender", "nationality", "religion"])
def test_the_lexicons_that_come_with_the_software(name: str) -> None:
    groups = load_lexicon(f"builtin:{name}")
    assert len(groups) >= 3
    for group in groups:
        assert group.name.startswith(f"{name}/")
        assert "TransExplain" in group.source
        # below five entities the statistics say nothing
        assert len({group.entities.get(term, term) for term in group.terms}) >= 5
    terms = [(term, group.name) for group in groups for term in group.terms]
    assert len({term for term, _ in terms}) == len(terms), "a term in two groups"


def test_an_unknown_shipped_lexicon_names_those_there_are() -> None:
    known = "builtin:gender, builtin:nationality, builtin:religion"
    with pytest.raises(LexiconError, match=f"builtin:names; known: {known}"):
        load_lexicon("builtin:names")


def test_escapes_that_make_one_letter_together_are_that_letter(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text('smiles: ["\\uD83D\\uDE00"]')
    assert load_lexicon(path)[0].terms == ("\N{GRINNING FACE}",)


@pytest.mark.parametrize("name", ["x.yaml", "x.json"])
@pytest.mark.parametrize("term", ["\\ud83d", "a\\u0000"])
def test_a_term_that_no_text_can_hold_is_refused(tmp_path: Path, name: str, term: str) -> None:
    path = tmp_path / name
    path.write_text(f'{{"smiles": ["{term}"]}}')
    with pytest.raises(LexiconError, match=r"smiles.0: holds NUL"):
        load_lexicon(path)
