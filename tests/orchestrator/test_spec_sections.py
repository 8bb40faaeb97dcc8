"""Sections of a specification: their options, and their paths in a form that every folder reads."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.spec import AuditSpec, load_spec
from orchestrator.spec.audit_spec import SECTIONS, overrides_of
from orchestrator.spec.groups_section import GroupsSection
from orchestrator.spec.spec_document import Section
from transexplain.errors import ConfigurationError
from transexplain.methods import METHODS, parameters_of
from transexplain.methods.method_table import TABLE

PLAIN: dict[str, Any] = {"model": "m", "data": "d.csv"}


def spec_of(**keys: Any) -> AuditSpec:
    return AuditSpec.model_validate({**PLAIN, **keys})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bert", "masked"):
        (tmp_path / name).mkdir()


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("bert", "HERE/bert"),
        ("org/bert", "org/bert"),  # of the hub: no such folder is here
        ("timm:deit", "timm:deit"),
        ("timm:deit?checkpoint=w.safetensors", "timm:deit?checkpoint=HERE/w.safetensors"),
        ("/models/bert", "/models/bert"),
    ],
)
def test_paths_of_models(tmp_path: Path, source: str, wanted: str) -> None:
    found = spec_of(model=source).absolute().model.source
    assert found == wanted.replace("HERE", str(tmp_path))


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("d.csv", "HERE/d.csv"),
        ("parts/*.jsonl.gz", "HERE/parts/*.jsonl.gz"),
        ("imagefolder:pictures", "imagefolder:HERE/pictures"),
        ("eraser:movies#val", "eraser:HERE/movies#val"),
        ("odd:name.csv", "HERE/odd:name.csv"),
    ],
)
def test_paths_of_data(tmp_path: Path, source: str, wanted: str) -> None:
    found = spec_of(data=source).absolute().data.source
    assert found == wanted.replace("HERE", str(tmp_path))


def test_files_among_the_parameters_of_methods(tmp_path: Path) -> None:
    head = {"name": "decoded-gradcam", "params": {"head": "masked", "layer": 1}}
    elsewhere = {"name": "decoded-gradcam", "params": {"head": "org/masked"}, "label": "hub"}
    spec = spec_of(method=head, evaluation={"methods": [head, "lrp", elsewhere]}).absolute()
    assert spec.method.params == {"head": str(tmp_path / "masked"), "layer": 1}
    rows = spec.evaluation.methods
    assert not isinstance(rows, str)
    assert [row.params.get("head") for row in rows] == [
        str(tmp_path / "masked"),
        None,
        "org/masked",
    ]
    assert rows[2].label == "hub"


def test_lexicons_pairs_and_a_second_lexicon(tmp_path: Path) -> None:
    groups = {"lexicon": ["a.yaml", "builtin:gender"], "second": "b.csv", "pairs": "p.json"}
    found = spec_of(groups=groups).absolute().groups
    assert found is not None
    assert found.lexicon == (str(tmp_path / "a.yaml"), "builtin:gender")
    assert (found.second, found.pairs) == (str(tmp_path / "b.csv"), str(tmp_path / "p.json"))
    listed = spec_of(groups={"lexicon": "builtin:gender", "pairs": [["he", "she"]]})
    assert listed.absolute().groups == listed.groups.model_copy(  # type: ignore[union-attr]
        update={"lexicon": ("builtin:gender",)}
    )


def test_absolute_is_absolute_already() -> None:
    spec = spec_of(model="bert", groups="a.yaml", method={"name": "lrp", "params": {"gamma": 1}})
    assert spec.absolute() == spec.absolute().absolute()


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(ConfigurationError, match="unknown method 'lpr'"):
        spec_of(method="lpr").absolute()


@pytest.mark.parametrize("name", [name for name in METHODS if TABLE[name].files])
def test_what_is_declared_a_file_is_a_parameter(name: str) -> None:
    assert set(TABLE[name].files) <= set(parameters_of(name))


def test_a_stored_specification_is_read_again() -> None:
    explain = {"method": "gradient-x-input", "exact_sample": 0.1}
    for spec in (spec_of(explain=explain), spec_of(method="attnlrp"), spec_of()):
        read = AuditSpec.from_document(spec.model_dump(mode="json"))
        assert read == spec


def test_every_section_of_the_specification_is_listed() -> None:
    named = {*sections_in(AuditSpec), *(f"groups.{name}" for name in sections_in(GroupsSection))}
    assert named == set(SECTIONS)


def sections_in(section: type[Section]) -> set[str]:
    fields = section.model_fields.items()
    return {name for name, field in fields if "Section" in repr(field.annotation)}


def test_options_are_keys_of_their_sections() -> None:
    seen: list[str] = []
    for section in (AuditSpec, *SECTIONS.values()):
        assert issubclass(section, Section)
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
        with pytest.raises(ConfigurationError, match="takes a value, not"):
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
    section = spec_of(payload={"sink": sink}).absolute().payload
    assert section.sink == wanted.replace("HERE", str(tmp_path))
    planned = section.planned()
    assert planned is not None and (planned.url, planned.keep) == (section.sink, "both")


def test_a_form_alone_has_no_sink() -> None:
    section = spec_of(payload="float32").payload
    assert (section.form, section.planned()) == ("float32", None)


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        ("ftp://host/{run}", r"ftp:// is no address"),
        ("s3://KEY:hunter2@bucket/{run}", r"a URL holds no credentials"),
        ("s3://{run}", r"names no bucket and key"),
    ],
)
def test_sinks_that_cannot_be_written_are_refused_by_the_plan(sink: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        spec_of(payload={"sink": sink}).payload.planned()
    assert "hunter2" not in str(caught.value)
