"""One frame of labels in every format, with every way to write their mapping: one reading."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tiny_audit import make_audit
from tiny_models import bert, wordpiece

from orchestrator.notebook_audit import data_section
from orchestrator.plan import prepare_audit
from orchestrator.spec import load_spec
from transexplain.data.shard_reader import read_shard
from transexplain.data.snapshot import prepare
from transexplain.errors import TargetError
from transexplain.settings import Settings
from transexplain.types.dataset_labels import label_index, label_mapping
from transexplain.types.items import Item
from transexplain.types.plans import DatasetSpec, Shard
from transexplain.types.targets import ClassNames

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
    sources = {"memory": data_section(frame, tmp_path)["source"]}
    for form, write in FORMS.items():
        if (form, column) != ("parquet", "numpy objects"):  # which pyarrow does not write
            sources[form] = str(tmp_path / f"rows.{form}")
            write(frame, tmp_path / f"rows.{form}")
    mappings = MAPPINGS
    if column == "truths":
        mappings = [{True: "neutral", False: "negative"}, {"TRUE": "neutral", "false": "negative"}]
    if column != "half floats":  # which json does not know of a frame
        sources["rows"] = data_section(frame.to_dict("records"), tmp_path)["source"]
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
    data = data_section(source, folder / "snapshots")
    path = make_audit(folder, groups=None, evaluation={"items": 0}, data=data, **keys)
    return prepare_audit(load_spec(path), Settings(snapshot_dir=folder / "snapshots"))


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
    with pytest.raises(TargetError, match="0 good, 1 bad, 2 mixed"):
        planned(tmp_path, forms[source], labels="by-index")
    for mapping in ({2: "so-so"}, {"mixed": "so-so"}, {2.0: 1}):
        found = planned(tmp_path, forms[source], labels=mapping)
        assert found.labels == {"0": "good", "1": "bad", "2": "so-so"} and not found.warnings
    found = planned(tmp_path, forms[source], labels={0: "bad", 1: "good", 2: "so-so"})
    assert found.labels == {"0": "bad", "1": "good", "2": "so-so"}, "a person says otherwise"
    assert len(found.warnings) == 1


def test_categories_of_pandas_and_dictionaries_of_arrow_are_their_values(tmp_path: Path) -> None:
    """The codes behind the categories are 1 for bad and 0 for good."""
    stars = pd.Categorical(["good", "bad", None, "so-so"], categories=["good", "bad", "so-so"])
    frame = pd.DataFrame({"text": ["nice", "x", "film", "good"], "label": stars})
    frame.to_parquet(tmp_path / "rows.parquet")
    assert pq.read_schema(tmp_path / "rows.parquet").field("label").type.index_type == pa.int8()
    for source in (str(tmp_path / "rows.parquet"), frame):
        found = labels_in(data_section(source, tmp_path)["source"], tmp_path)
        assert found == ["good", "bad", None, "so-so"]


def rated(folder: Path, stars: list[Any], **keys: Any) -> Any:
    """The plan of an audit of a model that gives 1, 2 or 3 stars."""
    path = make_audit(folder, evaluation={"items": 0}, **keys)
    bert(id2label={0: "1", 1: "2", 2: "3"}).save_pretrained(folder / "model")
    wordpiece().save_pretrained(folder / "model")
    rows = [{"text": f"a nice film {n}", "label": stars[n % len(stars)]} for n in range(12)]
    pd.DataFrame(rows).to_csv(folder / "texts.csv", index=False)
    return prepare_audit(load_spec(path), Settings(snapshot_dir=folder / "snapshots"))


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


def test_thresholds_of_labels_called_by_digits(tmp_path: Path) -> None:
    path = make_audit(tmp_path, groups=None, evaluation={"items": 0}, targets=["predicted"])
    text = path.read_text().removesuffix("}") + ', "thresholds": {2: 0.25}}'
    path.write_text(text)
    several = bert(id2label={0: "1", 1: "2", 2: "3"}, problem_type="multi_label_classification")
    several.save_pretrained(tmp_path / "model")
    found = prepare_audit(load_spec(path), Settings(snapshot_dir=tmp_path / "snapshots"))
    assert found.plan.several and found.plan.several.thresholds == {"1": 0.5, "2": 0.25, "3": 0.5}


def test_by_index_is_offered_only_where_labels_can_be_numbers_of_classes(tmp_path: Path) -> None:
    """Labels 0 and 1 may be, but not where 1 is the name of the first class."""
    stars = rated(tmp_path, [0, 1], data=str(tmp_path / "texts.csv"), targets=["predicted"])
    assert stars.labels == {"0": None, "1": "1"}
    bert(id2label={0: "bad", 1: "fair", 2: "good"}).save_pretrained(tmp_path / "model")
    found = prepare_audit(load_spec(tmp_path / "audit.yaml"), Settings(snapshot_dir=tmp_path / "s"))
    offered = ["by-index" in " ".join(one.warnings) for one in (stars, found)]
    assert offered == [False, True]
