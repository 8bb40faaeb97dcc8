import gzip
import json
from pathlib import Path

import pytest

from transexplain.bias.lexicon import load_lexicon
from transexplain.errors import LexiconError
from transexplain.types import EntityGroup


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


@pytest.mark.parametrize("packed", [False, True])
def test_json_and_gz(tmp_path: Path, packed: bool) -> None:
    content = json.dumps({"a": {"terms": ["x"], "source": "s"}, "b": ["y z"]}).encode()
    path = tmp_path / ("g.json.gz" if packed else "g.json")
    path.write_bytes(gzip.compress(content) if packed else content)
    groups = load_lexicon(path)
    assert [(g.name, g.terms, g.source) for g in groups] == [
        ("a", ("x",), "s"),
        ("b", ("y z",), ""),
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "mapping of group names"),
        ("- a\n- b\n", "mapping of group names"),
        ("a: []\n", "'a' needs a list"),
        ("a: Rhine\n", "'a' needs a list"),
        ("a: {source: s}\n", "'a' needs a list"),
        ("a: {terms: [x], sorce: s}\n", "unknown keys ['sorce']"),
        ("a: {terms: [x], source: 3}\n", "source of group 'a'"),
        ("a: [No]\n", "term False was read as bool, not text; put it in quotes"),
        ("a: [1984]\n", "term 1984 was read as int"),
        ("a: ['  ']\n", "'a' has an empty term"),
        ("2020: [x]\n", "group name 2020 is not text"),
        ("a: [x]\na: [y]\n", "'a' is given twice"),
        ("? [a, b]\n: [x]\n", "cannot be a name"),
        ("a: [x\n", "expected ',' or ']'"),
        ("a: !!python/object:os.system [x]\n", "could not determine a constructor"),
    ],
)
def test_a_wrong_file_is_named_with_its_fault(tmp_path: Path, content: str, says: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(LexiconError) as caught:
        load_lexicon(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)


def test_a_json_group_given_twice(tmp_path: Path) -> None:
    with pytest.raises(LexiconError, match="'a' is given twice"):
        load_lexicon(write(tmp_path, '{"a": ["x"], "a": ["y"]}', "g.json"))


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("g.txt", b"a", "plain or .gz"),
        ("g.yaml", b"a: [\xff]", "save it as UTF-8"),
        ("g.json.gz", b"{}", "cannot be read"),
        ("g.json.gz", gzip.compress(b'{"a": ["x"]}' * 99, mtime=0)[:-12], "cannot be read"),
        ("g.json", b'{"a": ', "Expecting value"),
        ("g.json", b"[" * 100_000, "recursion"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(LexiconError, match=says):
        load_lexicon(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LexiconError, match=r"nowhere\.yaml: cannot be read"):
        load_lexicon(tmp_path / "nowhere.yaml")


@pytest.mark.shared
def test_the_real_lexicon_loads(shared_dir: Path) -> None:
    path = shared_dir / "real/lexicons/entity_groups.json"
    raw = json.loads(path.read_text(encoding="utf-8"))
    groups = load_lexicon(path)
    assert [group.name for group in groups] == list(raw)
    for group in groups:
        assert set(group.terms) == {" ".join(term.split()) for term in raw[group.name]["terms"]}
        assert group.source == raw[group.name]["source"]
