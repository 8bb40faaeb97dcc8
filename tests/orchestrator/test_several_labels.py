"""Models that give an item several labels: targets, thresholds, sets of labels, rates of each."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kinds_of_audits import LABELS, several
from tiny_audit import make_audit, texts
from tiny_models import bert, wordpiece

import transexplain as te
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.analysis.groups.answers import Answer, answers_of, probability
from transexplain.errors import ConfigurationError, ItemError, ModelLoadError
from transexplain.models.loaded_model import LoadedModel
from transexplain.settings import Settings
from transexplain.types.items import Item

Call = Callable[..., tuple[int, str]]
QUIET: dict[str, Any] = {"evaluation": {"items": 0}}


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return te.wrap(several().double(), tokenizer=wordpiece())


def test_predicted_labels_are_those_above_their_threshold(model: LoadedModel) -> None:
    contents = texts(12)
    every = te.explain(model, contents, target="all")
    logits = np.array([one.logit for one in every]).reshape(12, 3)
    chances = 1 / (1 + np.exp(-logits))
    found = te.explain(model, contents, target="predicted")
    expected = [
        (str(row), LABELS[place])
        for row in range(12)
        for place in np.argsort(-logits[row], kind="stable")
        if chances[row, place] >= 0.5
    ]
    assert [(one.item_id, one.class_name) for one in found] == expected
    assert {len([n for n, _ in expected if n == str(row)]) for row in range(12)} >= {1, 2}
    assert all(one.ledger is not None and one.ledger.relative_gap < 1e-12 for one in found)
    own = te.explain(model, contents, thresholds={"threat": 0.999999, "toxic": 1e-6})
    assert sum(one.class_name == "toxic" for one in own) == 12
    assert not any(one.class_name == "threat" for one in own)
    top = te.explain(model, contents, target="top:2")
    assert [one.class_name for one in top[:2]] == [LABELS[i] for i in np.argsort(-logits[0])[:2]]
    assert top[0].probabilities == pytest.approx(dict(zip(LABELS, chances[0], strict=True)))


def test_the_target_label_is_every_label_of_the_item(model: LoadedModel) -> None:
    item = Item(id="a", index=0, content="a film", label='["threat", "toxic"]')
    found = te.explain(model, [item], target="label")
    assert [one.class_name for one in found] == ["toxic", "threat"]
    assert (
        te.explain(model, [Item(id="b", index=0, content="a film", label="[]")], target="label")
        == []
    )
    wrong = Item(id="c", index=0, content="a film", label='["toxic", "sarcasm"]')
    with pytest.raises(ItemError, match=r"'c' has label .*sarcasm"):
        te.explain(model, [wrong], target="label")


def test_what_does_not_fit_is_refused_by_name(model: LoadedModel) -> None:
    with pytest.raises(ConfigurationError, match="no label 'insullt'; did you mean 'insult'"):
        te.explain(model, "a film", thresholds={"insullt": 0.3})
    with pytest.raises(ConfigurationError, match=r"1.5 of 'toxic' is no probability"):
        te.explain(model, "a film", thresholds=1.5)
    one_class = te.wrap(bert(), tokenizer=wordpiece())
    with pytest.raises(ConfigurationError, match="thresholds is for a model that may give"):
        te.explain(one_class, "a film", thresholds=0.3)
    with pytest.raises(ConfigurationError, match="several labels are not evaluated"):
        te.evaluate(model, ["a film"])
    with pytest.raises(ModelLoadError, match="label 'a \\+ b' of the model"):
        te.wrap(
            bert(id2label={0: "a + b", 1: "c", 2: "d"}, problem_type="multi_label_classification"),
            tokenizer=wordpiece(),
        )


def test_the_odds_of_any_of_some_labels_are_those_of_independent_ones() -> None:
    both = Answer(name="bad", plus=(0, 1), minus=(), several=True)
    logits = np.array([[0.3, -2.0, 5.0], [30.0, -40.0, 0.0]])
    chances = 1 / (1 + np.exp(-logits))
    expected = 1 - (1 - chances[:, 0]) * (1 - chances[:, 1])
    np.testing.assert_allclose(probability(both.log_odds(logits)), expected, rtol=1e-12)
    assert both.selects("insult + threat", LABELS) and not both.selects("threat", LABELS)
    assert not both.selects("(none)", LABELS)


def audit(folder: Path, name: str = "audit.yaml", seed: int = 0, **keys: Any) -> Path:
    """The tiny audit of a model of several labels, its labels in a list or between commas."""
    path = make_audit(folder, **{**QUIET, "targets": ["predicted"], **keys})
    several(seed).save_pretrained(folder / "model")
    rows = []
    for i, text in enumerate(texts(40)):
        labels = [one for place, one in enumerate(LABELS) if (i >> place) & 1]
        written: Any = ", ".join(labels) or "(none)" if keys.get("label_separator") else labels
        rows.append({"text": text, "label": written})
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.rename(folder / name)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRANSEXPLAIN_DATABASE_URL", raising=False)


@pytest.mark.usefixtures("own_folder")
def test_labels_between_separators_read_as_lists_do(tmp_path: Path) -> None:
    plans = []
    for name, keys in (("lists", {}), ("cells", {"label_separator": ","})):
        (folder := tmp_path / name).mkdir()
        found = prepare_audit(load_spec(audit(folder, **keys)), Settings(snapshot_dir=folder / "s"))
        assert found.labels == {one: one for one in sorted(LABELS)}
        assert not [one for one in found.warnings if "no class" in one]
        plans.append(found.plan)
    assert plans[0].several is not None and plans[0].several.thresholds == {}
    assert [one.name for one in answers_of(plans[0])] == list(LABELS)
    assert {one.minus for one in answers_of(plans[0])} == {()}


@pytest.mark.exhaustive
@pytest.mark.usefixtures("own_folder")
def test_items_without_a_predicted_label_are_answers(call: Call, tmp_path: Path) -> None:
    path = str(audit(tmp_path, thresholds=dict.fromkeys(LABELS, 0.9999)))
    assert call("run", path)[0] == 0
    report = json.loads(call("report", "latest", "--json")[1])
    things = [one for one in report["groups"]["outcomes"] if one["group"] == "things"]
    mentions = sum(bool({"film", "goods", "x"} & {*text.split()}) for text in texts(40))
    assert [one["own"]["selected"]["count"] for one in things] == [0, 0, 0]
    assert [one["own"]["selected"]["total"] for one in things] == [mentions] * 3


@pytest.mark.exhaustive
@pytest.mark.usefixtures("own_folder")
def test_an_audit_of_several_labels_from_plan_to_gate(call: Call, tmp_path: Path) -> None:
    path = str(audit(tmp_path, thresholds={"threat": 0.4}))
    code, printed = call("run", path, "--json")
    assert code == 0, printed
    assert call("export", "--format", "csv", "-o", "tables")[0] == 0
    with (tmp_path / "tables" / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    model = te.load_model(str(tmp_path / "model"))
    every = te.explain(model, texts(40), target="all")
    chances = 1 / (1 + np.exp(-np.array([one.logit for one in every]).reshape(40, 3)))
    chosen = chances >= [0.5, 0.5, 0.4]
    for number, (row, of_item) in enumerate(zip(rows, chosen, strict=True)):
        names = [name for name, one in zip(LABELS, of_item, strict=True) if one]
        assert row["prediction"] == (" + ".join(names) or "(none)")
        given = [one for place, one in enumerate(LABELS) if (number >> place) & 1]
        assert row["label"] == (" + ".join(given) or "(none)")
    assert len({row["prediction"] for row in rows}) > 2
    report = json.loads(call("report", "latest", "--json")[1])
    outcomes = [
        one
        for one in report["groups"]["outcomes"]
        if one["group"] == "things" and not one["stratum"]
    ]
    assert {one["prediction"] for one in outcomes} == set(LABELS)
    mentions = np.array([bool({"film", "goods", "x"} & {*text.split()}) for text in texts(40)])
    for one in outcomes:
        place = LABELS.index(one["prediction"])
        assert one["own"]["selected"]["count"] == int(chosen[mentions, place].sum())
        assert one["own"]["selected"]["total"] == int(mentions.sum())
        labelled = np.array([(i >> place) & 1 for i in range(40)], dtype=bool)
        wrong = (labelled ^ chosen[:, place])[mentions].sum()
        assert one["own"]["error"]["count"] == int(wrong)
    assert "several labels" in json.dumps(report)
    code, printed = call("verify", "latest")
    assert code == 0, printed
    first = report["audited"]["run_id"]
    assert call("run", str(audit(tmp_path, seed=1, thresholds={"threat": 0.4})))[0] == 0
    code, printed = call("compare", first, "latest", "--json")
    assert code == 0, printed
    compared = json.loads(printed)["predictions"]
    flipped = compared["changed"]
    assert flipped and any(" + " in one["before"] + one["after"] for one in compared["shown"])
    policy = f"drift: {{against: {first}, max_changed_predictions: 0.01, force: true}}\n"
    (tmp_path / "policy.yaml").write_text(policy)
    code, printed = call("gate", "latest", "--policy", "policy.yaml")
    assert code == 1 and f"{flipped / 40:.3g} of 40 common items" in printed, printed
    code, printed = call("explain", "a film", "--model", str(tmp_path / "model"))
    assert code == 0 and "toxic" in printed
    silent = several()
    with torch.no_grad():
        silent.classifier.bias.sub_(100.0)
    silent.save_pretrained(tmp_path / "model")
    code, printed = call("explain", "a film", "--model", str(tmp_path / "model"))
    assert code == 0 and "nothing is predicted; --target names" in printed


def test_the_terminal_takes_thresholds(call: Call, tmp_path: Path) -> None:
    several().save_pretrained(tmp_path / "model")
    wordpiece().save_pretrained(tmp_path / "model")
    asked = ("explain", "a film", "--model", str(tmp_path / "model"), "-o", "found.json")

    def found(*words: str) -> list[Any]:
        code, printed = call(*asked, *words)
        assert code == 0, printed
        return list(json.loads((tmp_path / "found.json").read_text(encoding="utf-8")))

    every = found("--threshold", "0.000001")
    assert {one["class_name"] for one in every} == set(LABELS)
    chosen = [part for name in LABELS for part in ("--threshold", f"{name}=0.999999")]
    chosen[-1] = f"{LABELS[-1]}=0.000001"
    some = found(*chosen)
    assert [one["class_name"] for one in some] == [LABELS[-1]]
    for wrong, message in (
        (("--threshold", "high"), "is neither a probability, 0.3, nor LABEL=0.3"),
        (("--threshold", "0.3", "--threshold", "toxic=0.2"), "one probability for all labels"),
        (("--threshold", "insullt=0.3"), "did you mean 'insult'"),
        (("--threshold", "0.3", "--method", "all"), "--threshold decides what is predicted"),
    ):
        code, printed = call(*asked, *wrong)
        assert code == 2 and message in " ".join(printed.split()), printed
