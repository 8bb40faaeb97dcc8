"""Which rows belong together: named by a column, found in their texts, or neither."""

import random
from pathlib import Path

import pytest
from data_files import planned, write

from transexplain.data import item_clusters
from transexplain.data.item_clusters import NearDuplicates
from transexplain.data.shard_reader import clustering_of
from transexplain.errors import DataSourceError

LETTER = "{} wrote in {} that the kettle is loud and that the box held two screws and a leaflet"
WORDS = ["stone", "river", "lamp", "carpet", "orange", "window", "seven", "paper", "uncle"]


def different(count: int) -> list[str]:
    """Texts that share few words."""
    draw = random.Random(3)
    return [" ".join(draw.choices(WORDS, k=6)) + f" and number {n} of {n}{n}" for n in range(count)]


def table(folder: Path, rows: list[tuple[str, ...]], *names: str) -> Path:
    columns = ("text", *names)
    return write(folder / "rows.csv", [dict(zip(columns, row, strict=True)) for row in rows])


def test_a_name_or_a_month_makes_no_other_text() -> None:
    found = NearDuplicates()
    first = LETTER.format("Anna", "May")
    assert found.add(0, first) == []
    assert found.add(1, "Another text about the weather in the north of the country") == []
    assert found.add(2, LETTER.format("Pavel", "May")) == [0]
    assert found.add(3, LETTER.format("Anna", "June").upper()) == [0]
    assert found.add(4, "the kettle is loud") == []
    assert found.add(5, "... !") == found.add(6, "") == []


def test_near_duplicates_are_those_of_comparing_all_words() -> None:
    """Every text against every earlier one, by the definition."""
    draw = random.Random(5)
    texts = different(60)
    for text in texts[:30]:
        words = text.split()
        for _ in range(draw.randint(0, 3)):
            words[draw.randrange(len(words))] = draw.choice(WORDS)
        texts.append(" ".join(words))
    index, kept = NearDuplicates(), dict[int, set[str]]()
    for row, text in enumerate(texts):
        words_of = set(text.split())
        alike = [
            other
            for other, theirs in kept.items()
            if len(words_of & theirs) >= 0.8 * len(words_of | theirs)
        ]
        found = index.add(row, text)
        assert set(found) <= set(alike)
        if not found:
            kept[row] = words_of
            assert not alike or row > 60, "one at the very threshold may be missed"


def test_a_snapshot_numbers_what_a_column_names(tmp_path: Path, load) -> None:
    texts = different(6)
    who = ["ann", "bob", "ann", "", "cho", "bob"]
    path = table(tmp_path, list(zip(texts, who, strict=True)), "who")
    items = load(path, cluster="who")
    assert [item.cluster for item in items] == ["0", "1", "0", "", "4", "1"]
    assert [item.cluster for item in load(path)] == [""] * 6
    ref = planned(path, tmp_path, cluster="who")
    assert clustering_of(ref)["clusters"] == 4
    for option in ("cluster", "template"):
        with pytest.raises(DataSourceError, match="'author'"):
            load(path, **{option: "author"})


def test_near_duplicates_and_named_clusters_are_united(tmp_path: Path, load) -> None:
    texts = [*different(6), LETTER.format("Anna", "May"), LETTER.format("Bo", "May")]
    who = ["ann", "bob", "ann", "", "", "", "ann", ""]
    path = table(tmp_path, list(zip(texts, who, strict=True)), "who")
    assert [item.cluster for item in load(path)] == ["", "", "", "", "", "", "6", "6"]
    both = load(path, cluster="who")
    assert [item.cluster for item in both] == ["0", "1", "0", "", "", "", "0", "0"]
    alone = load(path, cluster="who", duplicates="off")
    assert [item.cluster for item in alone] == ["0", "1", "0", "", "", "", "0", ""]
    sampled = load(path, sample=8, seed=4)
    assert [item.cluster for item in sampled] == [item.cluster for item in load(path)]


def test_templates_are_kept_and_not_glued(tmp_path: Path, load) -> None:
    rows = [(LETTER.format(name, "May"), f"t{n % 2}") for n, name in enumerate("abcdef")]
    path = table(tmp_path, [*rows, ("one of its own", "alone"), ("none", "")], "form")
    items = load(path, template="form")
    assert [item.template for item in items] == ["t0", "t1"] * 3 + ["alone", ""]
    assert {item.cluster for item in items} == {""}
    found = clustering_of(planned(path, tmp_path, template="form"))
    assert found == {"templates": 3, "single": 1}


def test_texts_that_are_most_of_the_data_are_a_template(tmp_path: Path, load) -> None:
    path = table(tmp_path, [(LETTER.format(name, "May"),) for name in "abcdef"] + [("other",)])
    assert {item.cluster for item in load(path)} == {""}
    found = clustering_of(planned(path, tmp_path))
    assert (found["template"], found["repeating"]) == (6, 0)


def test_many_rows_are_not_searched(tmp_path: Path, load, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(tmp_path, [(text,) for text in [*different(4), *different(4)]])
    assert [item.cluster for item in load(path)] == list("01230123")
    monkeypatch.setattr(item_clusters, "MOST", 7)
    assert {item.cluster for item in load(path)} == {""}


def test_a_snapshot_without_clusters_is_what_it_was(tmp_path: Path) -> None:
    path = table(tmp_path, [(text,) for text in different(9)])
    looked, not_looked = (planned(path, tmp_path, duplicates=how) for how in ("auto", "off"))
    assert looked.fingerprint == not_looked.fingerprint
    assert clustering_of(looked) == {}
