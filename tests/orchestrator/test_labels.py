"""One frame of labels in every format, with every way to write their mapping: one reading."""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from gallery import Gallery
from gallery import prepare as prepared_audit
from kinds_of_audits import LABELS, TYPES, several, tagged_rows, tagger
from tiny_audit import make_audit, texts
from tiny_models import bert, wordpiece

import transexplain as te
from orchestrator.notebook_audit import data_section
from transexplain.analysis.groups.answers import answers_of
from transexplain.data.shard_reader import read_shard
from transexplain.data.snapshot import prepare
from transexplain.errors import ConfigurationError, ItemError, ModelLoadError, TargetError
from transexplain.models.loaded_model import LoadedModel
from transexplain.types.dataset_labels import label_index, label_mapping
from transexplain.types.items import Item, ItemFailure
from transexplain.types.plans import DatasetSpec, Shard
from transexplain.types.targets import ClassNames
from transexplain.types.token_labels import LabelScheme, TaggedSpan

#: labels of four rows -> the number that each is, or None
COLUMNS: dict[str, tuple[Any, list[int | None]]] = {
    "integers": ([1, 5, 0, 5], [1, 5, 0, 5]),
    "with a gap": ([1, None, 0, 5], [1, None, 0, 5]),
    "floats": ([1.0, np.nan, -0.0, 5.0], [1, None, 0, 5]),
    "half floats": (np.array([1, np.nan, 0, 5], dtype="float16"), [1, None, 0, 5]),
    "nullable": (pd.array([1, None, 0, 5], dtype="Int64"), [1, None, 0, 5]),
    "unsigned": (np.array([1, 5, 0, 5], dtype="uint8"), [1, 5, 0, 5]),
    "objects": ([1, None, 0.0, 5.0], [1, None, 0, 5]),
    "numpy objects": (
        pd.Series([np.int64(1), np.float64(5), np.float32(0), None], dtype=object),
        [1, 5, 0, None],
    ),
    "decimals": ([Decimal("1.00"), Decimal("0.00"), None, Decimal("5.0")], [1, 0, None, 5]),
    "categories": (pd.Categorical([1, None, 0, 5]), [1, None, 0, 5]),
    "float categories": (pd.Categorical([1.0, None, 0.0, 5.0]), [1, None, 0, 5]),
    "texts": (["1", "0.0", "", "5.00"], [1, 0, None, 5]),
    "truths": ([True, False, True, None], [1, 0, 1, None]),
    "large": ([10**15, 1, 0, 5], [10**15, 1, 0, 5]),
}
CLASSES = ("negative", "neutral", "positive", "mixed")
NUMBERS = {0: "negative", 1: "neutral", 5: "positive", 10**15: "positive"}
#: the same mapping as programs and people write it
MAPPINGS: list[dict[Any, Any]] = [
    NUMBERS,
    {str(number): name for number, name in NUMBERS.items()},
    {float(number): name for number, name in NUMBERS.items()},
    {f"{number}.00": name for number, name in NUMBERS.items()},
    {np.int64(number): CLASSES.index(name) for number, name in NUMBERS.items()},
    {Decimal(number): f"index:{CLASSES.index(name)}" for number, name in NUMBERS.items()},
    yaml.safe_load("{0: negative, 1.0: neutral, '5': positive, 1.0e+15: positive}"),
]
FORMS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "parquet": lambda frame, path: frame.to_parquet(path),
    "xlsx": lambda frame, path: frame.to_excel(path, index=False),
}


def labels_in(source: str, folder: Path) -> list[str | None]:
    ref = prepare(DatasetSpec(source=source), folder / "snapshots")
    items = list(read_shard(ref, Shard(index=0, start=0, stop=ref.rows)))
    assert all(isinstance(one, Item) for one in items), items
    return [one.label for one in items if isinstance(one, Item)]


@pytest.mark.parametrize("column", COLUMNS)
def test_every_type_is_read_alike_in_every_format(column: str, tmp_path: Path) -> None:
    labels, numbers = COLUMNS[column]
    frame = pd.DataFrame({"text": [f"row {one}" for one in range(4)], "label": labels})
    sources = {"memory": data_section(frame, tmp_path, {})["source"]}
    for form, write in FORMS.items():
        if (form, column) != ("parquet", "numpy objects"):  # which pyarrow does not write
            sources[form] = str(tmp_path / f"rows.{form}")
            write(frame, tmp_path / f"rows.{form}")
    mappings = MAPPINGS
    if column == "truths":
        mappings = [{True: "neutral", False: "negative"}, {"TRUE": "neutral", "false": "negative"}]
    if column != "half floats":  # which json does not know of a frame
        sources["rows"] = data_section(frame.to_dict("records"), tmp_path, {})["source"]
    names = ClassNames(CLASSES)
    for form, source in sources.items():
        found = labels_in(source, tmp_path)
        for mapping in mappings:
            read = [label_index(one, names, label_mapping(mapping, CLASSES)) for one in found]
            expected = [None if one is None else CLASSES.index(NUMBERS[one]) for one in numbers]
            assert read == expected, (form, mapping)
        if column == "truths":
            continue
        by_index = label_mapping("by-index", CLASSES)
        assert [label_index(one, names, by_index) for one in found] == [
            one if one in (0, 1) else None for one in numbers
        ], form
        stars = ClassNames([str(one) for one in (0, 1, 5, 10**15)])
        by_name = [label_index(one, stars, {}) for one in found]
        named = [None if one is None else (0, 1, 5, 10**15).index(one) for one in numbers]
        assert by_name == named, form
        assert {label_index(one, names, {}) for one in found} == {None}, form


@pytest.mark.parametrize("form", FORMS)
def test_the_names_of_classes_are_read_alike_in_every_format(form: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ["a", "b", "c"], "label": ["Positive", "negative", None]})
    FORMS[form](frame, tmp_path / f"rows.{form}")
    found = labels_in(str(tmp_path / f"rows.{form}"), tmp_path)
    assert [label_index(one, ClassNames(CLASSES), {}) for one in found] == [2, 0, None]


def planned(folder: Path, source: Any, **keys: Any) -> Any:
    """The plan of an audit of the tiny model: 0 bad, 1 so-so, 2 good."""
    data = data_section(source, folder / "snapshots", {})
    path = make_audit(folder, groups=None, evaluation={"items": 0}, data=data, **keys)
    return prepared_audit(path, folder)


@pytest.mark.parametrize("source", ["file", "memory", "table"])
def test_class_labels_of_datasets_are_read_by_their_names(source: str, tmp_path: Path) -> None:
    called = ["good", "bad", "mixed"]
    label = datasets.ClassLabel(names=called)
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    rows = {"text": ["nice", "x", "film", "good"], "label": [0, 1, 2, None]}
    data = datasets.Dataset.from_dict(rows, features=features)
    data.to_parquet(tmp_path / "rows.parquet")
    forms = {"file": str(tmp_path / "rows.parquet"), "memory": data, "table": data.data.table}
    found = planned(tmp_path, forms[source])
    assert found.labels == {"0": "good", "1": "bad", "2": None}
    warned = " ".join(found.warnings)
    assert "0 good, 1 bad, 2 mixed" in warned and "0 bad, 1 so-so, 2 good" in warned
    assert "by-index" not in warned
    with pytest.raises(TargetError, match="0"):
        planned(tmp_path, forms[source], labels="by-index")
    for mapping in ({2: "so-so"}, {"mixed": "so-so"}, {2.0: 1}):
        found = planned(tmp_path, forms[source], labels=mapping)
        assert found.labels == {"0": "good", "1": "bad", "2": "so-so"} and not found.warnings
    found = planned(tmp_path, forms[source], labels={0: "bad", 1: "good", 2: "so-so"})
    assert found.labels == {"0": "bad", "1": "good", "2": "so-so"}, "a person says otherwise"
    assert len(found.warnings) == 1


def rated(folder: Path, stars: list[Any], **keys: Any) -> Any:
    """The plan of an audit of a model that gives 1, 2 or 3 stars."""
    path = make_audit(folder, evaluation={"items": 0}, **keys)
    bert(id2label={0: "1", 1: "2", 2: "3"}).save_pretrained(folder / "model")
    wordpiece().save_pretrained(folder / "model")
    rows = [{"text": f"a nice film {n}", "label": stars[n % len(stars)]} for n in range(12)]
    pd.DataFrame(rows).to_csv(folder / "texts.csv", index=False)
    return prepared_audit(path, folder)


def test_an_audit_names_classes_called_by_digits_in_every_key(tmp_path: Path) -> None:
    found = rated(
        tmp_path,
        [1, 2, 5, None],
        data={"source": str(tmp_path / "texts.csv"), "meta": ["text"]},
        targets=[2, "class:1", {"contrast": [3, "index:0"]}, "low"],
        classifications=[{"name": "low", "classes": [1, "index:1"]}],
        labels={1: 1, 2.0: 2, 5: "index:2"},
        groups={
            "lexicon": str(tmp_path / "groups.json"),
            "impact": {"favourable": [3, "low"], "sex": "text", "data_source": "made up"},
        },
    )
    assert found.plan.targets[:2] == ("class:2", "class:1")
    assert found.labels == {"1.0": "1", "2.0": "2", "5.0": "3"}
    assert found.plan.impact.favourable == ("3", "low")


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
    assert te.explain(model, [replace(item, label="[]")], target="label") == []
    with pytest.raises(ItemError):
        te.explain(model, [replace(item, label='["toxic", "sarcasm"]')], target="label")


def test_what_does_not_fit_is_refused_by_name(model: LoadedModel) -> None:
    with pytest.raises(ConfigurationError, match="'insullt'"):
        te.explain(model, "a film", thresholds={"insullt": 0.3})
    with pytest.raises(ConfigurationError, match="'toxic'"):
        te.explain(model, "a film", thresholds=1.5)
    with pytest.raises(ConfigurationError):
        te.explain(te.wrap(bert(), tokenizer=wordpiece()), "a film", thresholds=0.3)
    with pytest.raises(ConfigurationError):
        te.evaluate(model, ["a film"])
    names = {0: "a + b", 1: "c", 2: "d"}
    joined = bert(id2label=names, problem_type="multi_label_classification")
    with pytest.raises(ModelLoadError, match=r"a \+ b"):
        te.wrap(joined, tokenizer=wordpiece())


def test_labels_between_separators_read_as_lists_do(tmp_path: Path) -> None:
    plans = []
    for keys in ({}, {"label_separator": ","}):
        path = make_audit(tmp_path, **QUIET, targets=["predicted"], **keys)
        several().save_pretrained(tmp_path / "model")
        rows = []
        for i, text in enumerate(texts(40)):
            labels = [name for place, name in enumerate(LABELS) if (i >> place) & 1]
            cell = ", ".join(labels) or "(none)"
            rows.append({"text": text, "label": cell if keys else labels})
        (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        prepared = prepared_audit(path, tmp_path)
        assert prepared.labels == {name: name for name in sorted(LABELS)}
        assert not [warning for warning in prepared.warnings if "no class" in warning]
        plans.append(prepared.plan)
    assert plans[0].several is not None and plans[0].several.thresholds == {}
    assert [answer.name for answer in answers_of(plans[0])] == list(LABELS)
    assert {answer.minus for answer in answers_of(plans[0])} == {()}
    assert answers_of(plans[1]) == answers_of(plans[0])


TEXT = "a nice film un good x goods e"


@pytest.fixture(scope="module")
def tagging() -> LoadedModel:
    return te.wrap(tagger().double(), tokenizer=wordpiece())


def tagged(tagging: LoadedModel, text: str) -> tuple[Any, list[str]]:
    """Logits (T, C) by hand, and the label of each token."""
    inputs = wordpiece()(text, return_tensors="pt")
    with torch.no_grad():
        logits = tagging.module(**inputs).logits[0]
    return logits, [TYPES[place] for place in logits.argmax(-1).tolist()]


def test_every_predicted_entity_is_a_target(tagging: LoadedModel) -> None:
    logits, labels = tagged(tagging, TEXT)
    found = te.explain(tagging, TEXT)
    assert found, "the random model must find something"
    for one in found:
        expected = sum(float(logits[p, TYPES.index(labels[p])]) for p in one.positions)
        assert one.logit == pytest.approx(expected, rel=1e-9)
        assert {labels[p].partition("-")[2] for p in one.positions} == {one.class_name}
        assert one.ledger is not None and one.ledger.relative_gap < 1e-12
        assert len(one.relevance) == len(logits)
        assert one.notes[0].startswith("explains the label of characters ")
    assert [one.rank for one in found] == list(range(len(found)))
    of_type = te.explain(tagging, TEXT, target=f"class:{found[0].class_name}")
    alike = [one for one in found if one.class_name == found[0].class_name]
    for one, other in zip(of_type, alike, strict=True):
        np.testing.assert_allclose(one.relevance, other.relevance)


def test_a_marked_span_and_given_entities_are_targets(tagging: LoadedModel) -> None:
    logits, _ = tagged(tagging, TEXT)
    begin = TEXT.index("good x")
    (one,) = te.explain(tagging, TEXT, target={"span": [begin, begin + 6, "LOC"]})
    places = [n for n, t in enumerate(one.features) if t.text in ("good", "x")]
    assert one.positions == tuple(places)
    expected = float(logits[places[0], 3] + logits[places[1], 4])
    assert one.logit == pytest.approx(expected, rel=1e-9)
    (same,) = te.explain(tagging, TEXT, target=f"span:{begin}-{begin + 6}:LOC")
    np.testing.assert_array_equal(one.relevance, same.relevance)
    label = json.dumps([{"start": begin, "end": begin + 6, "label": "LOC"}, [2, 6, "PER"]])
    item = Item(id="a", index=0, content=TEXT, label=label)
    given = te.explain(tagging, [item], target="label")
    assert [one.class_name for one in given] == ["LOC", "PER"]
    np.testing.assert_array_equal(given[0].relevance, one.relevance)


def test_what_does_not_fit_is_refused_of_tokens(
    tagging: LoadedModel,
) -> None:
    for target in ("all", "top:2", "contrast:PER-LOC", "class:CITY", "span:9-3:PER"):
        with pytest.raises(TargetError):
            te.explain(tagging, TEXT, target=target)
    with pytest.raises(ItemError):
        te.explain(tagging, TEXT, target="span:900-901:PER")
    for wrong in ({"long_text": "window"}, {"method": "gae"}):
        with pytest.raises(ConfigurationError):
            te.explain(tagging, TEXT, **wrong)
    with pytest.raises(TargetError):
        te.explain(tagging, TEXT, classifications=[{"name": "x", "classes": ["B-PER"]}])
    labels = ("PER", '[[0, 1, "CITY"]]', '[[0, 1, "PER"]]')
    items = [Item(id=str(n), index=0, content=TEXT, label=label) for n, label in enumerate(labels)]
    ends = te.explain(tagging, items, target="label", on_error="record")
    assert isinstance(ends[0], ItemFailure)
    assert "CITY" in ends[1].message and ends[1].kind == "no-label"
    assert ends[2].class_name == "PER"


@pytest.mark.parametrize(
    ("labels", "chosen", "expected"),
    [
        (TYPES, ("B-PER", "I-PER", "O", "I-PER"), [(0, 2, "PER"), (3, 4, "PER")]),
        (TYPES, ("B-PER", "B-PER", "I-LOC", "O"), [(0, 1, "PER"), (1, 2, "PER"), (2, 3, "LOC")]),
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
    with pytest.raises(ItemError, match="'CITY'") as caught:
        LabelScheme(labels).spelled(TaggedSpan(start=0, end=1, type="CITY"), encoding.features)
    assert caught.value.kind == "bad-label"


def starred(folder: Path, **keys: Any) -> Path:
    """The tiny audit, its texts rated by one to five stars."""
    path = make_audit(folder, groups=None, evaluation={"items": 0}, **keys)
    rows = [{"text": text, "label": 1 + i % 5} for i, text in enumerate(texts(40))]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRANSEXPLAIN_DATABASE_URL", raising=False)


@pytest.mark.parametrize(
    ("keys", "labels", "unknown"),
    [
        ({}, [None] * 5, 5),  # five stars are not the numbers of three classes
        ({"labels": "by-index"}, ["so-so", "good", None, None, None], 3),
        ({"labels": {1: "bad", 2: "bad", 5: "good"}}, ["bad", "bad", None, None, "good"], 2),
    ],
)
def test_stars_are_classes_where_a_mapping_says_so(
    tmp_path: Path, keys: dict[str, Any], labels: list[str | None], unknown: int
) -> None:
    found = prepared_audit(starred(tmp_path, **keys), tmp_path)
    assert found.labels == dict(zip("12345", labels, strict=True))
    [warning] = [one for one in found.warnings if "no class of the model" in one]
    assert f"{unknown} labels" in warning and "by-index" not in warning


@pytest.mark.exhaustive
def test_the_reading_of_labels_is_printed_and_stored(call: Any, tmp_path: Path) -> None:
    path = str(starred(tmp_path, labels={1: "bad", 5: "good"}))
    read = "labels: 1 = bad, 2 = no class, 3 = no class, 4 = no class, 5 = good"
    assert read in call("validate", path)[1]
    assert read in call("plan", path)[1]
    code, printed = call("plan", path, "--json")
    assert code == 0
    document = json.JSONDecoder().raw_decode(printed[printed.index("{") :])[0]
    assert document["labels"] == {"1": "bad", "2": None, "3": None, "4": None, "5": "good"}
    code, printed = call("run", path)
    assert code == 0 and "of 16 labelled items" in printed, "one and five stars of forty texts"
    assert call("export", "--format", "csv", "-o", "tables")[0] == 0
    with (tmp_path / "tables" / "predictions.csv").open(newline="", encoding="utf-8") as file:
        found = {(row["raw_label"], row["label"]) for row in csv.DictReader(file)}
    assert found == {("1", "bad"), ("2", ""), ("3", ""), ("4", ""), ("5", "good")}
    assert call("export", "--format", "jsonl", "-o", "all.jsonl")[0] == 0
    lines = (tmp_path / "all.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["raw_label"] for line in lines} == set("12345")


def outcomes_of(gallery: Gallery, name: str) -> dict[str, Any]:
    """The outcomes of the group `things` over all strata, by prediction."""
    rows = gallery.document(name)["groups"]["outcomes"]
    return {row["prediction"]: row["own"] for row in rows if row["group"] == "things"}


@pytest.mark.exhaustive
def test_several_labels_of_a_group_are_counted_by_hand(gallery: Gallery) -> None:
    model = te.load_model(str(gallery["labels"].folder / "model"))
    every = te.explain(model, texts(40), target="all")
    chosen = np.array([attribution.logit for attribution in every]).reshape(40, 3) >= 0
    outcomes = outcomes_of(gallery, "labels")
    assert set(outcomes) == set(LABELS)
    mentions = np.array([bool({"film", "goods", "x"} & {*text.split()}) for text in texts(40)])
    for place, name in enumerate(LABELS):
        selected = outcomes[name]["selected"]
        assert selected["count"] == int(chosen[mentions, place].sum())
        assert selected["total"] == int(mentions.sum())
        labelled = np.array([(i >> place) & 1 for i in range(40)], dtype=bool)
        wrong = (labelled ^ chosen[:, place])[mentions].sum()
        assert outcomes[name]["error"]["count"] == int(wrong)


@pytest.mark.exhaustive
def test_entities_of_a_group_are_counted_by_hand(gallery: Gallery) -> None:
    tagging = te.load_model(str(gallery["tokens"].folder / "model"))
    things = {"film", "goods", "x"}
    selected = recalled = labelled = 0
    for row in tagged_rows():
        predicted = {}
        for entity in te.explain(tagging, row["text"]):
            begin, _, end = (
                entity.notes[0].removeprefix("explains the label of characters ").split()
            )
            predicted[int(begin), int(end)] = entity.class_name
        spans = {(begin, end) for begin, end, _ in row["label"]}
        for place in {*spans, *predicted}:
            if things & {*row["text"][slice(*place)].split()}:
                is_per = predicted.get(place) == "PER"
                selected += is_per
                labelled += place in spans
                recalled += is_per and place in spans
    per = outcomes_of(gallery, "tokens")["PER"]
    assert per["selected"]["count"] == selected > 0
    recall = per["true_positive"]
    assert (recall["count"], recall["total"]) == (recalled, labelled) and recalled > 0


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification"])
def test_a_model_with_one_output_is_a_number_unless_it_says_otherwise(
    tmp_path: Path, problem: str
) -> None:
    spec = make_audit(
        tmp_path,
        evaluation={"items": 0},
        targets=["class:score"],
        data={"source": str(tmp_path / "texts.jsonl")},
    )
    shutil.rmtree(tmp_path / "model")
    model = bert(num_labels=1, id2label={0: "score"}, problem_type=problem)
    model.save_pretrained(tmp_path / "model")
    wordpiece().save_pretrained(tmp_path / "model")
    found = prepared_audit(spec, tmp_path)
    named = [one for one in found.warnings if "groups.practical.logit" in one]
    assert len(named) == (problem == "regression")
