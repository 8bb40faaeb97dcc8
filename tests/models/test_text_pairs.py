"""Items that are two texts: places in one string, relevance by text, windows, bad pairs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import bert, wordpiece

import transexplain as te
from transexplain.errors import ConfigurationError, DataSourceError
from transexplain.models.loaded_model import LoadedModel
from transexplain.reports.coloured_text import token_html
from transexplain.types.pairs import DIVIDER

Call = Callable[..., tuple[int, str]]
PAIR = ("a nice film", "good goods  x")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    torch.manual_seed(0)
    return te.wrap(bert(id2label={0: "no", 1: "maybe", 2: "yes"}), tokenizer=wordpiece())


def test_positions_count_characters_of_both_texts(model: LoadedModel) -> None:
    (one,) = te.explain(model, [PAIR])
    assert one.text == DIVIDER.join(PAIR)
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
    with torch.no_grad():
        inputs = wordpiece()(*PAIR, return_tensors="pt")
        wanted = model.module(**inputs).logits[0, 2]
    assert inputs["token_type_ids"].max() == 1
    assert one.logit == pytest.approx(float(wanted), abs=1e-5)


def test_a_word_is_of_one_text_where_both_have_one(model: LoadedModel) -> None:
    (one,) = te.explain(model, [("film", "film")])
    assert [word.text for word in one.words()] == ["film", "film"]
    (whole,) = te.explain(model, ["film film"])
    assert whole.by_text() == (pytest.approx(sum(w.relevance for w in whole.words()), abs=1e-6),)


def test_pairs_and_texts_stand_beside_each_other(model: LoadedModel) -> None:
    mixed = te.explain(model, ["a film", PAIR, "good"])
    for one, content in zip(mixed, ["a film", PAIR, "good"], strict=True):
        (alone,) = te.explain(model, [content])
        np.testing.assert_allclose(one.relevance, alone.relevance, atol=1e-6)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("", "a"), "the first text of the pair is empty"),
        (("a", "  "), "the second text of the pair is empty"),
        (("a", f"b{DIVIDER}c"), "the second text holds U.001E"),
    ],
)
def test_bad_pairs_are_named_and_cost_no_other(
    model: LoadedModel, pair: tuple[str, str], message: str
) -> None:
    found = te.explain(model, [PAIR, pair, "good"], on_error="record")
    assert [hasattr(one, "relevance") for one in found] == [True, False, True]
    assert message.replace(".", "+") in found[1].message


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


def test_both_texts_are_drawn_with_a_line_between(model: LoadedModel) -> None:
    (one,) = te.explain(model, [PAIR])
    drawn = token_html(one)
    assert drawn.count("tx-divider") == 1
    assert DIVIDER not in drawn


def specification(folder: Path, **keys: Any) -> Path:
    bert(id2label={0: "no", 1: "maybe", 2: "yes"}).save_pretrained(folder / "model")
    wordpiece().save_pretrained(folder / "model")
    rows = [
        {"premise": "a nice film" + " x" * (i % 4), "hypothesis": "good goods", "label": "yes"}
        for i in range(12)
    ]
    rows[3]["hypothesis"] = " "
    rows[5] = {"premise": None, "hypothesis": "good", "label": "no"}
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "pairs.jsonl").write_text(text, encoding="utf-8")
    (folder / "groups.json").write_text('{"things": ["film", "goods"]}', encoding="utf-8")
    data = {"source": str(folder / "pairs.jsonl"), "text": ["premise", "hypothesis"]}
    spec = {
        "name": "pairs",
        "model": str(folder / "model"),
        "data": {**data, **keys},
        "groups": {"lexicon": str(folder / "groups.json"), "check": 0},
        "evaluation": {"items": 0},
        "shard_size": 5,
    }
    (folder / "audit.yaml").write_text(json.dumps(spec), encoding="utf-8")
    return folder / "audit.yaml"


@pytest.mark.exhaustive
def test_an_audit_of_pairs(call: Call, tmp_path: Path) -> None:
    code, printed = call("run", str(specification(tmp_path)))
    assert "2 failed (1 empty-text and 1 null)" in printed, (code, printed)
    (page,) = Path("audits").glob("pairs-*.html")
    assert "tx-divider" in page.read_text(encoding="utf-8")
    code, printed = call("export", "--format", "jsonl", "-o", "pairs.jsonl.out")
    assert code == 0, printed
    found = [json.loads(line) for line in Path("pairs.jsonl.out").read_text().splitlines()]
    assert all(one["text"].split(DIVIDER)[1] == "good goods" for one in found)
    code, printed = call("verify", "--items", "4")
    assert code == 0, printed
    (report,) = Path("audits").glob("pairs-*.json")
    rows = json.loads(report.read_text(encoding="utf-8"))["groups"]["rows"]
    assert sum(row["mentions"] for row in rows if row["group"] == "things") >= 2 * len(found), (
        "film in the first text, goods in the second"
    )


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

    assert _pair("a", "b") == f"a{DIVIDER}b"
    with pytest.raises(ConfigurationError, match="--second is for models of texts"):
        _pair(object(), "b")
