"""The audit specification: short and long forms, overrides, and errors that name the key."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tiny_audit import make_audit

from orchestrator.plan import prepare_audit
from orchestrator.plan.estimate import CostEstimate, estimate
from orchestrator.spec import AuditSpec, load_spec
from orchestrator.spec.audit_spec import SECTIONS, overrides_of
from orchestrator.spec.groups_section import GroupsSection
from orchestrator.spec.spec_document import SpecSection
from transexplain.errors import ConfigurationError, SpecError
from transexplain.methods import METHODS, parameters_of
from transexplain.methods.method_table import TABLE
from transexplain.settings import Settings

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
    assert spec.groups.lexicon == "names.yaml"
    assert spec.groups.practical.logit == 0.1
    assert spec.groups.practical.impact_ratio == 0.8


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour: red", r"colour: unknown key; known here: name, model, data"),
        ("data: {source: d, txt: body}", r"data.txt: .* did you mean 'text'\? known here: source"),
        ("model: {}", r"model.source: is missing"),
        ("shard_size: 0", r"shard_size: .*greater than or equal to 1"),
        ("sink: {keep: all, to: 'lake/{run}'}", r"sink.keep: .*'both' or 'sink'"),
        ("sink: {keep: sink}", r"sink: keep: sink needs `to`"),
        ("sink: s3://b/runs/", r"sink: .*'s3://b/runs/' must hold {run} once"),
        ("sink: {to: 'a/{day}/{run}'}", r"sink: .*no other braces"),
        ("sink: {to: 'a/*/{run}'}", r"sink: .*is a pattern"),
        ("name: a/b", r"name: "),
        ("targets: []", r"targets: "),
        ("groups: {planted: -1}", r"groups.planted: .*greater than 0"),
        ("groups: {check: -1}", r"groups.check: .*greater than or equal to 0"),
        ("model: [unclosed", r"not valid YAML"),
        ("groups: {scenario: {}}", r"groups.scenario.0.harm: is missing"),
        ("groups: {scenario: {harm: x, review_date: 31.12.2027}}", r"review_date: '31.12.2027'"),
        ("groups: {scenario: {harm: x, review_date: '2027-02-29'}}", r"there is no day 2027-02-29"),
        ("groups: {practical: {ratio: 0.7}}", r"known here: logit, probability, changed, spread"),
        ("groups: {impact: {favourable: good}}", r"name the column of `sex`, that of `ethnicity`"),
        ("groups: {impact: {favourable: [], sex: who}}", r"at least 1 item"),
        ("groups: {impact: {favourable: good, sex: a, ethnicity: a}}", r"are one column"),
        ("groups: {impact: {favourable: [a, a], sex: who}}", r"names a class twice"),
        ("groups: {impact: {favourable: a, sex: b, exclude_below: 1}}", r"less than 1"),
        ("groups: {impact: {favourable: a, sex: b, in_use_since: soon}}", r"'soon' is no day"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: str) -> None:
    key = text.partition(":")[0]
    given = "".join(f"{name}: x\n" for name in ("model", "data") if name != key)
    with pytest.raises(SpecError, match=words):
        load_spec(written(tmp_path, f"{given}{text}\n"))


def test_unreadable_files_and_bad_settings(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("name: caf\xe9".encode("latin-1"))
    (tmp_path / "text.yaml").write_text("just text\n")
    for name in ("absent.yaml", "latin.yaml", "text.yaml"):
        with pytest.raises(SpecError, match=name):
            load_spec(tmp_path / name)
    with pytest.raises(SpecError, match=r"data\.limit"):
        load_spec(written(tmp_path), {}, ["data.limit"])


def test_a_cheap_method_with_an_exact_sample() -> None:
    document = {"model": "m", "data": "d.csv"}
    explain = {"method": "gradient-x-input", "exact_sample": 0.05}
    spec = AuditSpec.model_validate({**document, "explain": explain})
    assert (spec.explain.exact, spec.explain.seed) == (None, 0)
    assert spec.explained_by.name == "gradient-x-input"
    assert AuditSpec.model_validate(document).explained_by.name == "lrp"


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        ("method=lrp explain.method=attnlrp explain.exact_sample=0.1", "give `method` for"),
        ("explain.method=attnlrp", "explain.exact_sample"),
        ("explain.method=attnlrp explain.exact_sample=0", "explain.exact_sample"),
        ("explain.method=attnlrp explain.exact_sample=1.5", "explain.exact_sample"),
        ("explain.method=attnlrp explain.exact_sample=1 explain.share=2", "explain.share"),
    ],
)
def test_ways_to_explain_that_contradict_each_other(
    tmp_path: Path, settings: str, printed: str
) -> None:
    with pytest.raises(SpecError, match=re.escape(printed)):
        load_spec(written(tmp_path), settings=settings.split())


PLAIN: dict[str, Any] = {"model": "m", "data": "d.csv"}


def spec_of(**keys: Any) -> AuditSpec:
    return AuditSpec.model_validate({**PLAIN, **keys})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bert", "masked"):
        (tmp_path / name).mkdir()


@pytest.mark.parametrize(
    ("section", "source", "wanted"),
    [
        ("model", "bert", "HERE/bert"),
        ("model", "org/bert", "org/bert"),  # of the hub: no such folder is here
        ("model", "timm:deit", "timm:deit"),
        ("model", "timm:deit?checkpoint=w.bin", "timm:deit?checkpoint=HERE/w.bin"),
        ("model", "/models/bert", "/models/bert"),
        ("data", "d.csv", "HERE/d.csv"),
        ("data", "parts/*.jsonl.gz", "HERE/parts/*.jsonl.gz"),
        ("data", "imagefolder:pictures", "imagefolder:HERE/pictures"),
        ("data", "eraser:movies#val", "eraser:HERE/movies#val"),
        ("data", "odd:name.csv", "HERE/odd:name.csv"),
    ],
)
def test_paths_of_models_and_data(tmp_path: Path, section: str, source: str, wanted: str) -> None:
    found = getattr(spec_of(**{section: source}).absolute(), section).source
    assert found == wanted.replace("HERE", str(tmp_path))


def test_files_among_the_parameters_of_methods(tmp_path: Path) -> None:
    head = {"name": "decoded-gradcam", "params": {"head": "masked", "layer": 1}}
    elsewhere = {"name": "decoded-gradcam", "params": {"head": "org/masked"}, "label": "hub"}
    spec = spec_of(method=head, evaluation={"methods": [head, "lrp", elsewhere]}).absolute()
    assert spec.method.params == {"head": str(tmp_path / "masked"), "layer": 1}
    rows = spec.evaluation.methods
    assert not isinstance(rows, str)
    heads = [row.params.get("head") for row in rows]
    assert heads == [str(tmp_path / "masked"), None, "org/masked"]
    assert rows[2].label == "hub"


def test_lexicons_pairs_and_a_second_lexicon(tmp_path: Path) -> None:
    groups = {"lexicon": ["a.yaml", "builtin:gender"], "second": "b.csv", "pairs": "p.json"}
    found = spec_of(groups=groups).absolute().groups
    assert found.lexicon == (str(tmp_path / "a.yaml"), "builtin:gender")
    assert (found.second, found.pairs) == (str(tmp_path / "b.csv"), str(tmp_path / "p.json"))
    listed = spec_of(groups={"lexicon": "builtin:gender", "pairs": [["he", "she"]]})
    assert listed.absolute().groups == listed.groups.model_copy(  # type: ignore[union-attr]
        update={"lexicon": ("builtin:gender",)}
    )


@pytest.mark.parametrize("name", [name for name in METHODS if TABLE[name].files])
def test_what_is_declared_a_file_is_a_parameter(name: str) -> None:
    assert set(TABLE[name].files) <= set(parameters_of(name))


def test_every_section_of_the_specification_is_listed() -> None:
    named = {*sections_in(AuditSpec), *(f"groups.{name}" for name in sections_in(GroupsSection))}
    assert named == set(SECTIONS)


def sections_in(section: type[SpecSection]) -> set[str]:
    fields = section.model_fields.items()
    return {name for name, field in fields if "Section" in repr(field.annotation)}


def test_options_are_keys_of_their_sections() -> None:
    seen: list[str] = []
    for section in (AuditSpec, *SECTIONS.values()):
        assert issubclass(section, SpecSection)
        assert set(section.options.values()) <= set(section.model_fields)
        assert section.shorthand is None or section.shorthand in section.model_fields
        seen += section.options
    assert len(seen) == len(set(seen)), "an option is of one section"


def test_options_become_keys() -> None:
    given = overrides_of(model="m", data="d.csv", target=["all"], method=None, join="sum", stride=2)
    assert given == {
        "model.source": "m",
        "data.source": "d.csv",
        "targets": ["all"],
        "long_text_join": "sum",
        "stride": 2,
    }
    assert overrides_of(target=[], methods="all", items=3, practical=0.0) == {
        "evaluation.methods": "all",
        "data.sample": 3,
        "groups.practical": 0.0,
    }
    assert load_spec(
        None, {"model.source": "m", "data.source": "d", "targets": ["all"]}
    ).targets == ("all",)


def test_off_is_a_word_where_it_may_stand_and_yes_is_no_number() -> None:
    off = load_spec(None, {"model.source": "m", "data.source": "d.csv"}, ["data.duplicates=off"])
    assert off.data.duplicates == "off"  # YAML reads it as false
    for setting in ("shard_size=true", "evaluation.items=yes", "groups.check=off"):
        with pytest.raises(ConfigurationError):
            load_spec(None, {"model.source": "m", "data.source": "d.csv"}, [setting])


@pytest.mark.parametrize(
    ("sink", "wanted"),
    [
        ("lake/run-{run}", "HERE/lake/run-{run}"),
        ("s3://bucket/run-{run}/", "s3://bucket/run-{run}/"),
        ("memory://lake/{run}/parts", "memory://lake/{run}/parts"),
    ],
)
def test_places_of_sinks(tmp_path: Path, sink: str, wanted: str) -> None:
    section = spec_of(sink={"to": sink}).absolute().sink
    assert section.to == wanted.replace("HERE", str(tmp_path))
    planned = section.planned()
    assert planned is not None and (planned.url, planned.keep) == (section.to, "both")


@pytest.mark.parametrize(
    "sink", ["ftp://host/{run}", "s3://KEY:hunter2@bucket/{run}", "s3://{run}"]
)
def test_sinks_that_cannot_be_written_are_refused_by_the_plan(sink: str) -> None:
    with pytest.raises(ConfigurationError, match=sink.partition(":")[0]) as caught:
        spec_of(sink={"to": sink}).sink.planned()
    assert "hunter2" not in str(caught.value)


def estimated(folder: Path, **groups: object) -> CostEstimate:
    """The estimate of a tiny audit, its groups with further keys."""
    lexicon = {"lexicon": str(folder / "groups.json"), **groups}
    spec = load_spec(make_audit(folder, groups=lexicon), settings=("evaluation.items=0",))
    return estimate(prepare_audit(spec, Settings(snapshot_dir=folder / "snapshots")))


def test_both_questions_have_a_power_for_every_group(tmp_path: Path) -> None:
    found = estimated(tmp_path)
    assert set(found.power) == {"things", "praise"}
    assert all("mention" in words and "outcome" in words for words in found.power.values())
    assert "9 of 10 runs find" in found.summary_text()


def test_texts_of_one_template_are_one_text_and_cost_no_swaps(tmp_path: Path) -> None:
    names = {"first": ["Ann", "Ben", "Cid", "Dee"], "second": ["Eve", "Fay", "Gil", "Hal"]}
    source = tmp_path / "corpus.jsonl"
    costs = []
    for template in (None, "template"):
        data = {"source": str(source), "template": template}
        spec = load_spec(make_audit(tmp_path, data=data, evaluation={"items": 0}))
        (tmp_path / "groups.json").write_text(json.dumps(names), encoding="utf-8")
        rows = [
            {"text": f"a nice film by {name} and {number}", "template": str(number)}
            for number in range(12)
            for name in itertools.chain(*names.values())
        ]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        costs.append(estimate(prepare_audit(spec, Settings(snapshot_dir=tmp_path / "snapshots"))))
    assert costs[0].swaps > 0 and costs[1].swaps == 0
    for group in names:  # the change of the logit by a mention that 9 of 10 runs find
        smallest, larger = (
            float(re.findall(r"mention ([0-9.]+) and", cost.power[group])[0]) for cost in costs
        )
        assert larger > smallest
