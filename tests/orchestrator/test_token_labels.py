"""Models that label tokens: entities as targets, marked spans, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kinds_of_audits import TYPES as LABELS
from kinds_of_audits import tagged_rows, tagger
from tiny_audit import make_audit, texts
from tiny_models import wordpiece

import transexplain as te
from transexplain.errors import ConfigurationError, ItemError, TargetError
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.items import Item
from transexplain.types.token_labels import LabelScheme, TaggedSpan

Call = Callable[..., tuple[int, str]]
TEXT = "a nice film un good x goods e"


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return te.wrap(tagger().double(), tokenizer=wordpiece())


def tagged(model: LoadedModel, text: str) -> tuple[Any, list[str]]:
    """Logits (T, C) by hand, and the label of each token."""
    inputs = wordpiece()(text, return_tensors="pt")
    with torch.no_grad():
        logits = model.module(**inputs).logits[0]
    return logits, [LABELS[place] for place in logits.argmax(-1).tolist()]


def test_every_predicted_entity_is_a_target(model: LoadedModel) -> None:
    logits, labels = tagged(model, TEXT)
    found = te.explain(model, TEXT)
    assert found, "the random model must find something"
    for one in found:
        expected = sum(float(logits[p, LABELS.index(labels[p])]) for p in one.positions)
        assert one.logit == pytest.approx(expected, rel=1e-9)
        assert {labels[p].partition("-")[2] for p in one.positions} == {one.class_name}
        assert one.ledger is not None and one.ledger.relative_gap < 1e-12
        assert len(one.relevance) == len(logits)
        assert one.notes[0].startswith("explains the label of characters ")
    assert [one.rank for one in found] == list(range(len(found)))
    of_type = te.explain(model, TEXT, target=f"class:{found[0].class_name}")
    alike = [one for one in found if one.class_name == found[0].class_name]
    for one, other in zip(of_type, alike, strict=True):
        np.testing.assert_allclose(one.relevance, other.relevance)


def test_a_marked_span_and_given_entities_are_targets(model: LoadedModel) -> None:
    logits, _ = tagged(model, TEXT)
    begin = TEXT.index("good x")
    (one,) = te.explain(model, TEXT, target={"span": [begin, begin + 6, "LOC"]})
    places = [n for n, t in enumerate(one.features) if t.text in ("good", "x")]
    assert one.positions == tuple(places)
    expected = float(logits[places[0], 3] + logits[places[1], 4])
    assert one.logit == pytest.approx(expected, rel=1e-9)
    (same,) = te.explain(model, TEXT, target=f"span:{begin}-{begin + 6}:LOC")
    np.testing.assert_array_equal(one.relevance, same.relevance)
    label = json.dumps([{"start": begin, "end": begin + 6, "label": "LOC"}, [2, 6, "PER"]])
    item = Item(id="a", index=0, content=TEXT, label=label)
    given = te.explain(model, [item], target="label")
    assert [one.class_name for one in given] == ["LOC", "PER"]
    np.testing.assert_array_equal(given[0].relevance, one.relevance)


def test_the_doctor_examines_the_largest_logit_of_a_token(call: Call, tmp_path: Path) -> None:
    tagger().save_pretrained(tmp_path)
    wordpiece().save_pretrained(tmp_path)
    code, printed = call("doctor", str(tmp_path))
    assert code == 0 and "verdict: covered" in printed, printed


def test_what_does_not_fit_is_refused_by_name(model: LoadedModel) -> None:
    for target in ("all", "top:2", "contrast:PER-LOC"):
        with pytest.raises(TargetError, match="of one that labels tokens a target is"):
            te.explain(model, TEXT, target=target)
    with pytest.raises(TargetError, match="unknown class 'CITY'"):
        te.explain(model, TEXT, target="class:CITY")
    with pytest.raises(TargetError, match="is no span; write span:10-15:PER"):
        te.explain(model, TEXT, target="span:9-3:PER")
    with pytest.raises(ItemError, match="no word that the model reads"):
        te.explain(model, TEXT, target="span:900-901:PER")
    with pytest.raises(ConfigurationError, match="no long texts in windows"):
        te.explain(model, TEXT, long_text="window")
    with pytest.raises(ConfigurationError, match="explains one answer of an item"):
        te.explain(model, TEXT, "gae")
    with pytest.raises(TargetError, match="sum logits of one item"):
        te.explain(model, TEXT, classifications=[{"name": "x", "classes": ["B-PER"]}])
    broken = Item(id="b", index=0, content=TEXT, label="PER")
    other = Item(id="c", index=0, content=TEXT, label='[[0, 1, "CITY"]]')
    good = Item(id="d", index=0, content=TEXT, label='[[0, 1, "PER"]]')
    ends = te.explain(model, [broken, other, good], target="label", on_error="record")
    assert "is not a list of [start, end, type]" in ends[0].message
    assert "CITY" in ends[1].message and ends[1].kind == "no-label"
    assert ends[2].class_name == "PER"


@pytest.mark.parametrize(
    ("labels", "chosen", "expected"),
    [
        (LABELS, ("B-PER", "I-PER", "O", "I-PER"), [(0, 2, "PER"), (3, 4, "PER")]),
        (LABELS, ("B-PER", "B-PER", "I-LOC", "O"), [(0, 1, "PER"), (1, 2, "PER"), (2, 3, "LOC")]),
        (("O", "S-X", "B-X", "I-X"), ("B-X", "I-X", "I-X", "S-X"), [(0, 3, "X"), (3, 4, "X")]),
        (("V", "N"), ("N", "N", "V", "O"), [(0, 1, "N"), (1, 2, "N"), (2, 3, "V"), (3, 4, "V")]),
    ],
)  # fmt: skip
def test_labels_make_entities(
    labels: tuple[str, ...], chosen: tuple[str, ...], expected: list[tuple[int, int, str]]
) -> None:
    encoding = te.wrap(tagger(), tokenizer=wordpiece()).encode(
        [Item(id="a", index=0, content="a x e a")]
    )[0]
    logits = np.zeros((6, len(labels)))
    for place, label in enumerate(chosen):
        if label in labels:
            logits[place + 1, labels.index(label)] = 1.0
    found = LabelScheme(labels).entities(logits, encoding.features)  # type: ignore[union-attr,arg-type]
    words = [(2 * begin, 2 * end - 1, kind) for begin, end, kind in expected]
    assert [one.span for one in found] == [
        TaggedSpan(start=start, end=end, type=kind) for start, end, kind in words
    ]


def audit(folder: Path, seed: int = 0, *, labelled: bool = True, **keys: Any) -> Path:
    """The tiny audit of a model that labels tokens; every second word is a PER in the data."""
    path = make_audit(folder, **{"targets": ["predicted"], **keys})
    module = tagger(seed)
    module.save_pretrained(folder / "model")
    rows = tagged_rows() if labelled else [{"text": text} for text in texts(40)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def outcomes_of(call: Call, group: str) -> dict[str, Any]:
    report = json.loads(call("report", "latest", "--json")[1])
    assert "The model labels tokens" in json.dumps(report["notes"])
    found = report["groups"]["outcomes"]
    return {one["prediction"]: one for one in found if one["group"] == group and not one["stratum"]}


@pytest.mark.exhaustive
def test_an_audit_of_entities_from_plan_to_gate(call: Call, tmp_path: Path) -> None:
    path = str(audit(tmp_path))
    code, printed = call("run", path)
    assert code == 0 and "of 32 entities predicted as PER that mention things" in printed, printed
    assert "the entities of a changed text are others" in printed
    model = te.load_model(str(tmp_path / "model"))
    things = {"film", "goods", "x"}
    selected = recalled = given = 0
    rows = [json.loads(one) for one in (tmp_path / "texts.jsonl").read_text().splitlines()]
    for row in rows:
        found = {}
        for one in te.explain(model, row["text"]):
            begin, _, end = one.notes[0].removeprefix("explains the label of characters ").split()
            found[int(begin), int(end)] = one.class_name
        spans = {(begin, end): "PER" for begin, end, _ in row["label"]}
        for begin, end in {**spans, **found}:
            if things & {*row["text"][begin:end].split()}:
                is_per = found.get((begin, end)) == "PER"
                selected += is_per
                given += (begin, end) in spans
                recalled += is_per and (begin, end) in spans
    per = outcomes_of(call, "things")["PER"]["own"]
    assert per["selected"]["count"] == selected > 0
    recall = per["true_positive"]
    assert (recall["count"], recall["total"]) == (recalled, given) and recalled > 0
    assert call("verify", "latest")[0] == 0
    assert call("export", "--format", "csv", "-o", "tables")[0] == 0
    first = json.loads(call("report", "latest", "--json")[1])["audited"]["run_id"]
    assert call("run", str(audit(tmp_path, 1)))[0] == 0
    code, printed = call("compare", first, "latest", "--json")
    assert code == 0, printed
    flipped = json.loads(printed)["predictions"]["changed"]
    assert flipped > 0
    policy = f"drift: {{against: {first}, max_changed_predictions: 0.0001, force: true}}\n"
    (tmp_path / "policy.yaml").write_text(policy)
    code, printed = call("gate", "latest", "--policy", "policy.yaml")
    assert code == 1 and f"{flipped / 40:.3g} of 40 common items" in printed, printed
    code, printed = call("explain", TEXT, "--model", str(tmp_path / "model"))
    assert code == 0 and "explains the label of characters" in printed, printed


@pytest.mark.exhaustive
def test_without_labels_mentions_are_the_entities(call: Call, tmp_path: Path) -> None:
    path = str(audit(tmp_path, labelled=False))
    assert call("run", path)[0] == 0
    mentions = sum(word in ("film", "goods", "x") for text in texts(40) for word in text.split())
    per = outcomes_of(call, "things")["PER"]["own"]
    assert per["selected"]["total"] == mentions
    assert per["true_positive"] is None


def test_an_audit_refuses_what_entities_have_not(call: Call, tmp_path: Path) -> None:
    for keys, message in (
        ({"labels": {"x": "B-PER"}}, "labels is for models that answer an item"),
        ({"targets": ["top:2"]}, "of one that labels tokens a target is"),
        ({"long_text": "window"}, "no long texts in windows"),
        ({"method": "gae"}, "explains one answer of an item"),
        ({"thresholds": 0.3}, "thresholds is for a model that may give"),
    ):
        code, printed = call("run", str(audit(tmp_path, **keys)))
        assert code == 2 and message in " ".join(printed.split()), printed
