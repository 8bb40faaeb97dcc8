"""Items that are two texts: places in one string, relevance by text, windows, bad pairs."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from local_audits import aggregate_of
from numpy.typing import NDArray
from tiny_models import bert, wordpiece

import transexplain as te
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.analysis.groups.answers import answers_of
from transexplain.errors import ConfigurationError, DataSourceError
from transexplain.models.loaded_model import LoadedModel
from transexplain.reports.coloured_text import token_html
from transexplain.settings import Settings
from transexplain.types.pairs import texts_of

Call = Callable[..., tuple[int, str]]
PAIR = ("a nice film", "good goods  x")


def three_classes() -> Any:
    return bert(id2label={0: "no", 1: "maybe", 2: "yes"})


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return te.wrap(three_classes(), tokenizer=wordpiece())


def test_positions_count_characters_of_both_texts(model: LoadedModel) -> None:
    (one,) = te.explain(model, [PAIR])
    assert one.text is not None and texts_of(one.text, one.second_at) == PAIR
    assert [word.text for word in one.words()] == ["a", "nice", "film", "good", "goods", "x"]
    for token in one.features:
        if not token.special:
            assert one.text[token.start : token.end] == token.text.removeprefix("##")
    first, second = one.by_text()
    second_words = one.words()[3:]
    assert second == pytest.approx(sum(word.relevance for word in second_words), abs=1e-6)
    special = sum(r for r, t in zip(one.relevance, one.features, strict=True) if t.special)
    assert first + second + special == pytest.approx(float(one.relevance.sum()), abs=1e-5)


def test_the_model_reads_what_its_tokenizer_makes_of_a_pair(model: LoadedModel) -> None:
    (one,) = te.explain(model, [PAIR], target="class:yes")
    assert max(wordpiece()(*PAIR)["token_type_ids"]) == 1
    assert one.logit == pytest.approx(logits_of(PAIR)[2], abs=1e-5)


@pytest.mark.parametrize(
    "texts",
    [
        *(("a nice\x1efilm",), ("a nice \x1e film",), ("\x1ea nice film",), ("a nice film\x1e",)),
        *(("a\x1e\x1enice\x1efilm",), ("a\x1enice film", "good\x1egoods")),
        ("a nice film\x1e", "\x1egood goods"),
    ],
)
def test_a_record_separator_in_a_text_is_a_character_of_it(
    model: LoadedModel, texts: tuple[str, ...]
) -> None:
    """As Word writes hyphens that break no line, and library catalogues divide their records."""
    content = texts if texts[1:] else texts[0]
    (one,) = te.explain(model, [content], target="class:yes")
    assert one.logit == pytest.approx(logits_of(texts)[2], abs=1e-6)
    special = [token.text for token in one.features if token.special]
    assert special == ["[CLS]", *["[SEP]"] * len(texts)]
    assert texts_of(one.text, one.second_at) == texts
    assert len(one.by_text()) == len(texts)
    assert token_html(one).count("tx-divider") == len(texts) - 1


def test_pairs_and_texts_stand_beside_each_other(model: LoadedModel) -> None:
    mixed = te.explain(model, ["a film", PAIR, "good"])
    for one, content in zip(mixed, ["a film", PAIR, "good"], strict=True):
        (alone,) = te.explain(model, [content])
        np.testing.assert_allclose(one.relevance, alone.relevance, atol=1e-6)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (("", "a"), "the first text of the pair"),
        (("a", "  "), "the second text of the pair"),
        (3 * "\x1e", "empty"),
    ],
)
def test_bad_pairs_are_named_and_cost_no_other(
    model: LoadedModel, content: str | tuple[str, str], reported: str
) -> None:
    found = te.explain(model, [PAIR, content, "good"], on_error="record")
    assert [hasattr(one, "relevance") for one in found] == [True, False, True]
    assert found[1].kind == "empty-text"
    assert reported in found[1].message


def test_long_pairs_have_all_of_the_shorter_text_in_every_window(model: LoadedModel) -> None:
    long, short = "nice good film a x " * 8, "goods"
    for pair in ((long, short), (short, long)):
        (one,) = te.explain(model, [pair], long_text="window", max_length=16)
        assert len(one.words()) == 41
        assert "windows of at most 16 positions" in one.notes[0]
        assert one.ledger is not None and abs(one.ledger.gap) < 1e-5 * one.ledger.magnitude
        assert all(np.isfinite(one.by_text()))
    (cut,) = te.explain(model, [(long, short)], max_length=16)
    assert cut.words()[-1].text == "goods", "the longer text is cut"


def specification(
    folder: Path, rows: Sequence[dict[str, Any]], text: str | Sequence[str], **keys: Any
) -> Path:
    three_classes().save_pretrained(folder / "model")
    wordpiece().save_pretrained(folder / "model")
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "pairs.jsonl").write_text(lines, encoding="utf-8")
    (folder / "groups.json").write_text(
        '{"things": ["film", "goods"], "praise": ["nice", "good"]}', encoding="utf-8"
    )
    spec = {
        "name": "pairs",
        "model": str(folder / "model"),
        "data": {"source": str(folder / "pairs.jsonl"), "text": text},
        "groups": {"lexicon": str(folder / "groups.json"), "check": 0},
        "evaluation": {"items": 0},
        "shard_size": 5,
        **keys,
    }
    (folder / "audit.yaml").write_text(json.dumps(spec), encoding="utf-8")
    return folder / "audit.yaml"


SINGLE = ["a nice\x1efilm", "\x1egood film", "a film\x1e", "good\x1egoods\x1ex", "a nice film"]
PAIRS = [
    ("a nice\x1efilm", "good goods"),
    ("goods x", "film\x1egood"),
    ("x good\x1e", "\x1efilm a"),
    ("a nice film", "good x"),
]


def logits_of(texts: Sequence[str]) -> NDArray[np.float64]:
    """(C,) by the module and its tokenizer themselves."""
    with torch.no_grad():
        rows = three_classes()(**wordpiece()(*texts, return_tensors="pt")).logits
    return np.asarray(rows[0], dtype=np.float64)


@pytest.mark.parametrize("items", [SINGLE, PAIRS], ids=["single", "pairs"])
def test_an_audit_keeps_record_separators(
    call: Call, tmp_path: Path, items: Sequence[str | tuple[str, str]]
) -> None:
    """From the file to the store, exports, Parquet files of the run, an import and a comparison."""
    texts = [(one,) if isinstance(one, str) else one for one in items]
    names = ["premise", "hypothesis"][: len(texts[0])]
    rows = [dict(zip(names, one, strict=True)) for one in texts]
    spec = specification(tmp_path, rows, names if names[1:] else names[0], sink="lake/{run}")
    assert call("run", str(spec))[0] == 0
    for form in ("jsonl", "parquet"):
        assert call("export", "--format", form, "-o", f"rows.{form}")[0] == 0
    tables: dict[str, list[dict[str, object]]] = {
        "predictions": [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()],
        "logits": pq.read_table(next(Path("lake").rglob("*.parquet")).parent).to_pylist(),
    }
    exported = pq.read_table("rows.parquet").to_pylist()
    for logits, found in (*tables.items(), ("predictions", exported)):
        for row in (one for one in found if one["target"] == "predicted"):
            assert texts_of(row["text"], row["second_at"]) == texts[row["idx"]]
            np.testing.assert_allclose(row[logits], logits_of(texts[row["idx"]]), atol=1e-6)
    assert {row["idx"] for row in exported} == {*range(len(texts))}
    code, printed = call("verify", "--items", "9")
    assert code == 0, printed
    words = ("--classes", "no,maybe,yes", "--set", "evaluation.items=0")
    assert call("import", "rows.parquet", *words)[0] == 0
    assert call("export", "--format", "jsonl", "-o", "again.jsonl")[0] == 0
    again = [json.loads(line) for line in Path("again.jsonl").read_text().splitlines()]
    assert [texts_of(one["text"], one["second_at"]) for one in again] == [
        texts_of(one["text"], one["second_at"]) for one in exported
    ]
    (first,) = (one.name for one in Path("lake").iterdir())
    assert call("run", str(spec))[0] == 0
    code, printed = call("compare", first, "latest", "--out", "compared")
    assert code == 0, printed
    (compared,) = Path("compared").glob("*.json")
    predictions = json.loads(compared.read_text(encoding="utf-8"))["predictions"]
    assert (predictions["common"], predictions["other_content"]) == (len(texts), 0)


@pytest.mark.parametrize("items", [SINGLE, PAIRS], ids=["single", "pairs"])
def test_changed_items_are_read_as_the_items_were(
    tmp_path: Path, items: Sequence[str | tuple[str, str]]
) -> None:
    """Swapped and left out names, also at both ends of a text, against the module itself."""
    texts = [(one,) if isinstance(one, str) else one for one in items] * 6
    names = ["premise", "hypothesis"][: len(texts[0])]
    rows = [dict(zip(names, one, strict=True)) for one in texts]
    keys = {"groups": {"lexicon": str(tmp_path / "groups.json"), "check": 1000}}
    spec = specification(tmp_path, rows, names if names[1:] else names[0], **keys)
    prepared = prepare_audit(load_spec(spec), Settings(snapshot_dir=tmp_path / "snapshots"))
    checked = aggregate_of(prepared).checked
    own = {one.document: one.entity for one in checked.observations if one.own}
    others = [one for one in checked.observations if not one.own]
    assert len(others) > 20
    for one in others:
        changed = [
            re.sub(rf"\b{own[one.document]}\b", one.entity, text)
            for text in texts[int(one.document)]
        ]
        logits = logits_of(changed)
        expected = [float(answer.log_odds(logits)) for answer in answers_of(prepared.plan)]
        assert one.log_odds == pytest.approx(expected, abs=1e-5), changed
    assert len(checked.ablations) > 10
    for one in checked.ablations:
        before = texts[int(one.item_id)]
        left = [re.sub(rf"\b{one.entity}\b", "", text) for text in before]
        place = ("no", "maybe", "yes").index(one.class_name)
        change = logits_of(before)[place] - logits_of(left)[place]
        assert one.change == pytest.approx(change, abs=1e-5), left


def test_marks_in_pairs_are_refused_by_name(tmp_path: Path) -> None:
    from transexplain.data.snapshot import prepare
    from transexplain.types.plans import DatasetSpec

    source = tmp_path / "x.jsonl"
    source.write_text('{"a": "b", "c": "d"}\n')
    with pytest.raises(DataSourceError, match=r"data\.text names"):
        prepare(DatasetSpec(source=str(source), text=("a", "c"), evidence="e"), tmp_path)
    with pytest.raises(DataSourceError, match="no column 'e'"):
        prepare(DatasetSpec(source=str(source), text=("a", "e")), tmp_path)


def test_a_second_text_is_for_texts() -> None:
    from orchestrator.cli.explain_command import _pair

    assert _pair("a", "b") == ("a", "b")
    with pytest.raises(ConfigurationError, match="--second is for models of texts"):
        _pair(object(), "b")
