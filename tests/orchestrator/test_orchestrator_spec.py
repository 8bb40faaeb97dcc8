"""The audit specification: short and long forms, overrides, and errors that name the key."""

import re
from pathlib import Path

import pytest

from orchestrator.spec import AuditSpec, load_spec
from transexplain.errors import SpecError

YAML = """
name: reviews
model: models/sst2
data:
  source: reviews.csv
  text: body
targets: [predicted, {contrast: [not-hate, hate]}]
groups: names.yaml
"""


def written(folder: Path, text: str = YAML) -> Path:
    path = folder / "audit.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_short_forms(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path))
    assert spec.model.source == "models/sst2"
    assert spec.data.text == "body"
    assert spec.method.name == "lrp"
    assert spec.targets == ("predicted", {"contrast": ["not-hate", "hate"]})
    assert spec.groups is not None
    assert spec.groups.lexicon == "names.yaml"
    assert spec.groups.practical.logit == 0.1
    assert spec.groups.practical.impact_ratio == 0.8


def test_one_target_needs_no_list() -> None:
    document = {"model": "m", "data": "d.csv"}
    assert AuditSpec.model_validate({**document, "targets": "top:2"}).targets == ("top:2",)
    one = AuditSpec.model_validate({**document, "targets": {"top": 2}})
    assert one.targets == ({"top": 2},)


def test_the_number_of_a_class_is_a_target(tmp_path: Path) -> None:
    one = load_spec(written(tmp_path, "model: m\ndata: d.csv\ntargets: 1\n"))
    assert one.targets == ("1",)
    several = load_spec(written(tmp_path, "model: m\ndata: d.csv\ntargets: [1, positive]\n"))
    assert several.targets == ("1", "positive")


def test_options_and_set_go_over_the_file(tmp_path: Path) -> None:
    spec = load_spec(
        written(tmp_path),
        {"model.source": "other", "targets": ["all"], "name": None},
        ["data.limit=5", "model.dtype=float64", "method.params.at=words", "labels={0: bad}"],
    )
    assert spec.name == "reviews"
    assert (spec.model.source, spec.model.dtype) == ("other", "float64")
    assert (spec.data.source, spec.data.limit) == ("reviews.csv", 5)
    assert spec.method.params == {"at": "words"}
    assert spec.method.name == "lrp"
    assert spec.targets == ("all",)


def test_no_file_is_needed() -> None:
    spec = load_spec(None, {"model.source": "m", "data.source": "d.csv"})
    assert (spec.model.source, spec.data.source) == ("m", "d.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: m\ndata: d\ncolour: red\n", r"colour: unknown key; known here: name, model, data"),
        (
            "model: m\ndata: {source: d, txt: body}\n",
            r"data.txt: .* did you mean 'text'\? known here: source",
        ),
        ("data: d\n", r"model: is missing"),
        ("model: m\ndata: d\nshard_size: 0\n", r"shard_size: .*greater than or equal to 1"),
        ("model: m\ndata: d\npayload: float8\n", r"payload.form: .*'float16' or 'float32'"),
        ("model: m\ndata: d\npayload: {keep: sink}\n", r"payload: keep: sink needs the sink"),
        (
            "model: m\ndata: d\npayload: {sink: s3://b/runs/}\n",
            r"payload: .*'s3://b/runs/' must hold {run} once.*s3://BUCKET/run-{run}/",
        ),
        ("model: m\ndata: d\npayload: {sink: 'a/{day}/{run}'}\n", r"payload: .*no other braces"),
        ("model: m\ndata: d\npayload: {sink: 'a/*/{run}'}\n", r"payload: .*is a pattern"),
        ("model: m\ndata: d\nname: a/b\n", r"name: "),
        ("model: m\ndata: d\ntargets: []\n", r"targets: "),
        ("model: m\ndata: d\ngroups: {planted: -1}\n", r"groups.planted: .*greater than 0"),
        ("model: m\ndata: d\ngroups: {planted: .nan}\n", r"groups.planted: .*(finite|greater)"),
        ("model: m\ndata: d\ngroups: {check: -1}\n", r"groups.check: .*greater than or equal to 0"),
        ("model: [unclosed\n", r"not valid YAML"),
        ("just text\n", r"holds no mapping"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        load_spec(written(tmp_path, text))


def test_unreadable_files_and_bad_settings(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"absent\.yaml"):
        load_spec(tmp_path / "absent.yaml")
    with pytest.raises(SpecError, match="must have the form"):
        load_spec(written(tmp_path), {}, ["data.limit"])
    (tmp_path / "latin.yaml").write_bytes("name: caf\xe9".encode("latin-1"))
    with pytest.raises(SpecError, match=r"latin.yaml"):
        load_spec(tmp_path / "latin.yaml")


def test_a_cheap_method_with_an_exact_sample() -> None:
    document = {"model": "m", "data": "d.csv"}
    explain = {"method": "gradient-x-input", "exact_sample": 0.05}
    spec = AuditSpec.model_validate({**document, "explain": explain})
    assert spec.explain is not None
    assert (spec.explain.exact, spec.explain.seed) == (None, 0)
    assert spec.explained_by.name == "gradient-x-input"
    assert AuditSpec.model_validate(document).explained_by.name == "lrp"


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        (["method=lrp", "explain.method=attnlrp", "explain.exact_sample=0.1"], "give `method` for"),
        (["explain.method=attnlrp"], "explain.exact_sample"),
        (["explain.method=attnlrp", "explain.exact_sample=0"], "explain.exact_sample"),
        (["explain.method=attnlrp", "explain.exact_sample=1.5"], "explain.exact_sample"),
        (
            ["explain.method=attnlrp", "explain.exact_sample=1", "explain.share=2"],
            "known here: method, params, exact, exact_params, exact_sample, seed",
        ),
    ],
)
def test_ways_to_explain_that_contradict_each_other(
    tmp_path: Path, settings: list[str], printed: str
) -> None:
    with pytest.raises(SpecError, match=re.escape(printed)):
        load_spec(written(tmp_path), settings=settings)
