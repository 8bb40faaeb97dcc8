"""Files of attributions made elsewhere: their columns, their bad rows, their snapshot."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import write
from hypothesis import assume, given
from hypothesis import strategies as st
from plain_records import new_plan

from transexplain.data.attribution_files import (
    GivenItem,
    PreparedImport,
    prepare_attributions,
    read_attributions,
)
from transexplain.data.attribution_rows import COLUMNS, FileColumns, as_tokens, find_spans, fold
from transexplain.errors import DataSourceError, ItemError
from transexplain.types.items import ItemFailure
from transexplain.types.plans import DatasetSpec, ModelRef, Shard
from transexplain.types.scores import MethodSpec
from transexplain.types.targets import ClassNames

GOOD: Mapping[str, Any] = {
    "text": "a nice film",
    "tokens": ["[CLS]", "a", "nice", "film", "[SEP]"],
    "scores": [0.5, 0.25, 2.0, -1.0, 0.0],
    "prediction": "good",
}
CLASSES = ClassNames(("bad", "good"))


def prepared(path: Path, snapshots: Path, **requested: Any) -> PreparedImport:
    return prepare_attributions(DatasetSpec(source=str(path)), FileColumns(**requested), snapshots)


def items(found: PreparedImport) -> list[GivenItem | ItemFailure]:
    plan = new_plan(
        name="x",
        model=ModelRef(source="imported", classes=found.classes),
        dataset=found.dataset,
        method=MethodSpec(name="shap", params={"unit": "score"}),
        task="imported",
    )
    return list(read_attributions(plan, Shard(index=0, start=0, stop=found.dataset.rows)))


def lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(folder: Path, rows: Sequence[Mapping[str, Any]], **requested: Any) -> Any:
    return items(prepared(lines(folder / "rows.jsonl", rows), folder / "snapshots", **requested))


def kinds(found: Sequence[GivenItem | ItemFailure]) -> list[str]:
    return [item.kind if isinstance(item, ItemFailure) else "" for item in found]


def test_a_row_becomes_an_item_with_its_attribution(tmp_path: Path) -> None:
    (given,) = read(tmp_path, [{**GOOD, "label": "bad", "author": 7}], meta=("author",))
    item, outcome, (attribution,) = given
    assert (item.id, item.index, item.content) == ("0", 0, "a nice film")
    assert (outcome.predicted, outcome.label, outcome.logits) == ("good", "bad", ())
    assert outcome.meta == {"author": "7"}
    of_class = (attribution.target, attribution.class_name, attribution.class_index)
    assert of_class == ("predicted", "good", 1)
    assert attribution.relevance.tolist() == GOOD["scores"]
    made = (attribution.unit, attribution.method, attribution.at, attribution.ledger)
    assert made == ("score", "shap", "imported", None)
    assert [(t.start, t.end, t.special, t.word) for t in attribution.features] == [
        (0, 0, True, None),
        (0, 1, False, 0),
        (2, 6, False, 1),
        (7, 11, False, 2),
        (0, 0, True, None),
    ]
    assert attribution.logit == 1.75
    assert "scores" in attribution.notes[0]


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("null", {"text": None}, "'text' is null"),
    ("empty-text", {"text": "  "}, "empty"),
    ("malformed-row", {"text": 3}, "not a text"),
    ("token-not-found", {"tokens": ["a", "film", "nice", "x", "y"]}, "token 1 ('film')"),
    ("length-mismatch", {"scores": [1.0]}, "1 scores for 5 tokens"),
    ("length-mismatch", {"scores": [], "tokens": []}, "no tokens"),
    ("length-mismatch", {"offsets": [[0, 1]]}, "1 offsets for 5 tokens"),
    ("length-mismatch", {"special": [True]}, "1 special flags for 5 tokens"),
    ("malformed-row", {"special": [2, 0, 0, 0, 0]}, "neither true nor false"),
    ("not-finite", {"scores": [0, 0, float("nan"), 0, 0]}, "scores[2] is nan"),
    ("not-finite", {"scores": [0, 0, 1e300, 0, 0]}, "scores[2] is 1e+300"),
    ("not-finite", {"scores": [0, None, 0, 0, 0]}, "scores[1] is None"),
    ("malformed-row", {"scores": [[1.0]] * 5}, "sum over the others"),
    ("malformed-row", {"scores": ["1"] * 5}, "not a number"),
    ("malformed-row", {"scores": 5}, "not a list"),
    ("null", {"scores": None}, "'scores' is null"),
    ("malformed-row", {"tokens": [1, 2, 3, 4, 5]}, "a token is not a text"),
    ("invalid-utf8", {"tokens": ["\ud800", "a", "film", "nice", "x"]}, "half of a letter"),
    ("null", {"tokens": None}, "neither tokens nor offsets"),
    ("bad-offsets", {"offsets": [[0, 0], [0, 1], [2, 6], [7, 99], [0, 0]]}, "outside the text"),
    ("bad-offsets", {"offsets": [[0, 0], [2, 6], [0, 1], [7, 11], [0, 0]]}, "reading order"),
    ("malformed-row", {"offsets": [[0], [0, 1], [2, 6], [7, 11], [0, 0]]}, "[start, end]"),
    ("null", {"prediction": None}, "no predicted class"),
    ("unknown-class", {"target": "predicted", "class": "bad"}, "'bad'"),
    ("unknown-class", {"target": "label"}, "names no class"),
    ("unknown-class", {"target": 1}, "target '1' is neither predicted"),
    ("malformed-row", {"logit": "x"}, "not a number"),
    ("not-finite", {"logit": float("inf")}, "logit is inf"),
]


@pytest.mark.parametrize(("kind", "changes", "message"), BAD)
def test_a_bad_row_says_why_and_costs_no_other(
    tmp_path: Path, kind: str, changes: dict[str, Any], message: str
) -> None:
    # null columns: a later row cannot bring in a column that the first has not
    empty = dict.fromkeys(("offsets", "special", "class", "target", "logit"))
    before, bad, after = read(tmp_path, [{**GOOD, **empty}, {**GOOD, **changes}, GOOD])
    assert isinstance(bad, ItemFailure)
    assert (bad.kind, bad.index, bad.item_id) == (kind, 1, "1")
    assert message in bad.message
    assert bad.message.startswith("row 1: ")
    assert kinds([before, after]) == ["", ""]


def test_classes_by_index_and_logits(tmp_path: Path) -> None:
    row = {**GOOD, "prediction": 1, "class": 0, "logits": [-1.5, 2.5], "label": "GOOD"}
    rows = [row, {**row, "prediction": "fine"}, {**row, "logits": [1.0]}]
    given, *others = read(tmp_path, rows, classes=CLASSES)
    _, outcome, (attribution,) = given
    assert (outcome.predicted, outcome.label, outcome.logits) == ("good", "good", (-1.5, 2.5))
    of_class = (attribution.target, attribution.class_name, attribution.class_index)
    assert of_class == ("class:bad", "bad", 0)
    assert (attribution.logit, attribution.notes) == (-1.5, ())
    assert kinds(others) == ["unknown-class", "length-mismatch"]


@pytest.mark.parametrize("given", [{}, {"prediction": "bad"}, {"logit": 0.5}])
def test_logits_in_another_order_than_the_classes_are_refused(tmp_path, given: Mapping[str, Any]):
    """The prediction is the first class by its logits; or the logit is that of another class."""
    logits = [2.5, -1.5] if not given else [-1.5, 2.5]
    rows = [{**GOOD, "logits": logits, **given} for _ in range(8)]
    with pytest.raises(DataSourceError, match="8 of 8"):
        prepared(lines(tmp_path / "rows.jsonl", rows), tmp_path, classes=CLASSES)


def test_up_to_one_row_in_a_hundred_may_contradict_its_logits(tmp_path: Path) -> None:
    """Equal logits, rounded ones, and those that name the prediction themselves do not."""
    wrong, right = ({**GOOD, "logits": one} for one in ([0.25, 0.125], [0.125, 0.25]))
    equal = {**GOOD, "logits": [0.5, 0.5]}
    rounded = {**GOOD, "logits": [-1, 2.25], "logit": 2.2504}
    silent = {**right, "prediction": None}
    found = read(tmp_path, [wrong, equal, rounded, silent, *[right] * 96], classes=CLASSES)
    assert kinds(found) == ["contradiction", *[""] * 99]
    assert {outcome.predicted for _, outcome, _ in found[1:]} == {"good"}
    with pytest.raises(DataSourceError, match="2 of 100"):
        read(tmp_path, [wrong, wrong, *[right] * 98], classes=CLASSES)


def test_labels_are_mapped_whatever_their_numbers_look_like(tmp_path: Path) -> None:
    rows = [{**GOOD, "label": label} for label in (1, 1.0, "1.0", "0.00", True)]
    mapping = {"1": "good", "0": "bad", "True": "good"}
    for classes in (None, CLASSES):
        found = read(tmp_path, rows, classes=classes, labels=mapping)
        labels = [outcome.label for _, outcome, _ in found]
        assert labels == ["good", "good", "good", "bad", "good"]


@pytest.mark.parametrize("classes", [None, CLASSES])
def test_numbers_are_the_classes_that_the_schema_of_the_file_names(
    classes: ClassNames | None, tmp_path: Path
) -> None:
    """`datasets` writes 0 for good and 1 for bad; the model's order is the other one."""
    feature = {"names": ["good", "bad"], "_type": "ClassLabel"}
    features = dict.fromkeys(("label", "prediction", "class"), feature)
    rows = [{**GOOD, "prediction": 0, "label": 1, "class": 0}]
    table = pa.Table.from_pylist(rows)
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "rows.parquet")
    (given,) = items(prepared(tmp_path / "rows.parquet", tmp_path, classes=classes))
    _, outcome, (attribution,) = given
    named = (outcome.predicted, attribution.class_name, outcome.label)
    assert named == ("good", "good", "bad")


@pytest.mark.parametrize("target", ["contrast:a-", "contrast:-", "contrast:", "contrast:good"])
@pytest.mark.parametrize("classes", [None, ClassNames(("bad", "good"))])
def test_a_contrast_of_no_two_classes_costs_its_row(
    target: str, classes: ClassNames | None, tmp_path: Path
) -> None:
    before, bad, after = read(
        tmp_path, [GOOD, {**GOOD, "class": None, "target": target}, GOOD], classes=classes
    )
    assert bad.kind == "unknown-class"
    assert kinds([before, after]) == ["", ""]


def test_neighbouring_rows_of_an_id_are_one_item(tmp_path: Path) -> None:
    rows = [
        {**GOOD, "id": "x", "class": "good"},
        {**GOOD, "id": "x", "class": "bad", "scores": [0.0] * 5},
        {**GOOD, "id": "x", "class": "bad"},  # twice
        {**GOOD, "id": "x", "class": "ugly", "text": "a nice film!"},  # another text
        {**GOOD, "id": "y", "class": None, "target": "contrast:good-bad"},
        {**GOOD, "id": "y", "class": "praise", "target": "praise"},
        {**GOOD, "id": None},
        {**GOOD, "id": "z", "scores": 1},
        {**GOOD, "id": "z", "scores": 2},
    ]
    found = prepared(lines(tmp_path / "rows.jsonl", rows), tmp_path)
    assert found.classes == ("bad", "good")
    assert found.targets == ("class:bad", "class:good", "contrast:good-bad", "praise")
    assert found.failed == 5
    ids = {
        given.item_id if isinstance(given, ItemFailure) else given[0].id: given
        for given in items(found)
    }
    assert list(ids) == ["x", "x#row:2", "x#row:3", "y", "row:6", "z", "z#row:8"]
    assert [attribution.class_name for attribution in ids["x"][2]] == ["good", "bad"]
    assert ids["x#row:2"].kind == ids["x#row:3"].kind == "contradiction"
    contrast, group = ids["y"][2]
    assert (contrast.class_index, contrast.class_name) == (None, "good-bad")
    assert (group.class_index, group.class_name) == (None, "praise")
    assert ids["row:6"].kind == "null"


def test_rows_of_an_id_that_are_apart_are_refused(tmp_path: Path) -> None:
    rows = [{**GOOD, "id": name} for name in ("x", "y", "x")]
    with pytest.raises(DataSourceError, match="sort the file"):
        read(tmp_path, rows)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"review": "a", "attr": [1]}, "scores, no tokens"),
        ({"attributions": [1], "input_ids": [1], "label": 0}, "Thermostat keeps them"),
        ({**GOOD, "logits": [1, 2]}, "--classes"),
        ({**GOOD, "scores": [1]}, "because 1 scores"),
    ],
)
def test_a_file_without_attributions_is_refused(tmp_path, row: dict[str, Any], message: str):
    with pytest.raises(DataSourceError) as error:
        read(tmp_path, [row])
    assert message in str(error.value)


def test_columns_of_other_names(tmp_path: Path) -> None:
    row = {"review": "nice", "attr": [1.5], "span": [[0, 4]], "yhat": "good"}
    named = {"text": "review", "scores": "attr", "offsets": "span", "prediction": "yhat"}
    ((_, _, (attribution,)),) = read(tmp_path, [row], named=named)
    assert attribution.features[0].text == "nice"
    for changes, wrong in (
        ({"scores": "attribute"}, "'attribute'"),
        ({"score": "attr"}, "'score'"),
    ):
        with pytest.raises(DataSourceError, match=wrong):
            read(tmp_path, [row], named={**named, **changes})
    with pytest.raises(DataSourceError, match="jsonl and parquet"):
        prepared(write(tmp_path / "rows.csv", [row]), tmp_path)


def test_parquet_says_the_same_and_the_corpus_is_that_of_the_texts(tmp_path: Path) -> None:
    offsets = [[0, 0], [0, 1], [2, 6], [7, 11], [0, 0]]
    rows = [{**GOOD, "id": f"i{n}", "offsets": offsets, "label": "bad"} for n in range(7)]
    rows[3]["scores"] = [1.0]
    first = prepared(lines(tmp_path / "rows.jsonl", rows), tmp_path)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet", row_group_size=2)
    table = prepared(tmp_path / "rows.parquet", tmp_path)
    assert table.dataset.fingerprint == first.dataset.fingerprint
    for row in rows:
        row["scores"] = [-2.0 * score for score in row["scores"]]
    other = prepared(lines(tmp_path / "other.jsonl", rows), tmp_path)
    assert other.dataset.fingerprint != first.dataset.fingerprint
    assert other.dataset.content == first.dataset.content
    rows[0]["text"] = "A nice film"
    third = prepared(lines(tmp_path / "third.jsonl", rows), tmp_path)
    assert third.dataset.content != first.dataset.content


def test_the_page_lists_every_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "import.md").read_text(encoding="utf-8")
    for meaning, names in COLUMNS.items():
        (line,) = [row for row in page.splitlines() if row.startswith(f"| {meaning} |")]
        assert all(f"`{name}`" in line for name in names)


# --- tokens of other programs: where they stand in the text, and which words they make


def texts_at(text: str, *tokens: str) -> list[str]:
    spans = find_spans(text, tokens, [None] * len(tokens))
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "tokens", "parts"),
    [
        (
            "unbelievably good",
            ["un", "##believ", "##ably", "good"],
            ["un", "believ", "ably", "good"],
        ),
        ("a nice film", ["<s>", "a", "Ġnice", "Ġfilm", "</s>"], ["", "a", "nice", "film", ""]),
        ("a nice film", ["▁a", "▁ni", "ce", "▁", "film"], ["a", "ni", "ce", "", "film"]),
        ("Hello world!", ["", "Hello ", "world", "!", ""], ["", "Hello", "world", "!", ""]),
        # signs that look like marks
        ("C## and [SEP] ▁x", ["C", "##", "and", "[SEP]", "▁x"], ["C", "##", "and", "[SEP]", "▁x"]),
        ("ann an", ["ann", "an"], ["ann", "an"]),
        # case, accents, which belong to their letters, and compatibility forms
        ("Café ÉTÉ", ["cafe", "ete"], ["Café", "ÉTÉ"]),
        ("cafe\u0301 x", ["café", "x"], ["cafe\u0301", "x"]),
        ("ﬁne…", ["fi", "ne", "..."], ["ﬁ", "ne", "…"]),
        ("I❤️you 👩‍👩‍👧!", ["i", "❤️", "you", "👩‍👩‍👧", "!"], ["I", "❤️", "you", "👩‍👩‍👧", "!"]),
        # an unknown token takes what lies between
        ("see 東京 now", ["see", "[UNK]", "now"], ["see", "東京", "now"]),
        ("see 東京", ["[CLS]", "see", "[UNK]", "[SEP]"], ["", "see", "東京", ""]),
    ],
)
def test_tokens_are_found_in_the_text(text: str, tokens: list[str], parts: list[str]) -> None:
    assert texts_at(text, *tokens) == parts


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("a good film", ("a", "film")),  # a word is missing
        ("a good film", ("a", "a")),  # it is there once
        ("caf\u00e9", ("caf", "\u00c3\u00a9")),  # bytes of a letter, as byte-level BPE writes them
        ("film", ("film", "film")),
        ("a b c", ("a", "[UNK]", "[UNK]")),
    ],
)
def test_tokens_that_do_not_follow_in_the_text_are_refused(text: str, tokens: tuple[str, ...]):
    with pytest.raises(ItemError) as error:
        texts_at(text, *tokens)
    assert error.value.kind == "token-not-found"
    assert repr(tokens[1]) in str(error.value)


LETTERS = st.text(
    st.one_of(
        st.characters(categories=["Lu", "Ll", "Lo", "Nd", "Mn", "Po", "So"]),
        st.sampled_from("abcdefgéüñ😀👍🏽❤️\u0301\u0308"),
    ),
    min_size=1,
    max_size=8,
)


def _plain(word: str) -> bool:
    return bool(fold(word)) and not unicodedata.combining(word[0])


@given(st.lists(LETTERS.filter(_plain), min_size=1, max_size=8), st.data())
def test_pieces_are_found_where_they_were_cut(words: list[str], data: st.DataObject) -> None:
    """Any text of words, cut anywhere but before an accent: spans are where the cuts were."""
    text, tokens, wanted = "", [], []
    for word in words:
        text += " " if text else ""
        cuts = {0, *data.draw(st.sets(st.integers(0, len(word) - 1)))}
        bounds = [cut for cut in sorted(cuts) if not unicodedata.combining(word[cut])]
        for start, end in zip(bounds, [*bounds[1:], len(word)], strict=True):
            piece = word[start:end]
            assume(fold(piece))  # a sign that folds to nothing has no place of its own
            tokens.append(("##" if start else "") + piece)
            wanted.append((len(text) + start, len(text) + end))
        text += word
    spans = find_spans(text, tokens, [None] * len(tokens))
    assert spans == wanted


def test_words_of_pieces() -> None:
    text = "don't un-do it😀"
    spans = [(0, 3), (3, 4), (4, 5), (6, 8), (8, 9), (9, 11), (12, 14), (14, 15), (14, 15)]
    tokens = as_tokens(text, ["x"] * 9, spans, [False] * 9)
    assert [token.word for token in tokens] == [0, 1, 2, 3, 4, 5, 6, 7, 7]
    assert [token.text for token in tokens][-2:] == ["😀", "😀"], "two bytes of one sign"
    marked = as_tokens(
        "東京 unable", ["東", "京", "un", "##able"], [(0, 1), (1, 2), (3, 5), (5, 9)], [False] * 4
    )
    assert [token.word for token in marked] == [0, 1, 2, 2]
    framed = as_tokens("a b", ["[CLS]", "a ", "b"], [(0, 0), (0, 2), (2, 3)], [True, False, False])
    assert [(t.start, t.end, t.word) for t in framed] == [(0, 0, None), (0, 1, 0), (2, 3, 1)]
