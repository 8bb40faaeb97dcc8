"""Whose code `redact` runs: what the operator allows, or a marked file beside the specification."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from plain_records import new_plan
from store_samples import make_result, stored_again

from orchestrator.spec import AuditSpec, load_spec
from transexplain.analysis.groups.shard_aggregate import ShardAggregate
from transexplain.auditing.text_redaction import TextGuard, guard_of
from transexplain.errors import ConfigurationError, SpecError
from transexplain.text.privacy import MODULES, hook_file, load_hook, spans_by
from transexplain.types.plans import (
    AuditPlan,
    PrivacyPlan,
    Shard,
)
from transexplain.types.scores import MetricScore

#: leaves a trace wherever it is run
HOOK = """
from pathlib import Path
from transexplain.text.privacy import redaction_hook

Path({trace!r}).touch()

{mark}
def names(text: str) -> list[tuple[int, int]]:
    return [(0, {count})]
"""


@pytest.fixture(autouse=True)
def _operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(MODULES, raising=False)
    monkeypatch.chdir(tmp_path)


def write(
    folder: Path, name: str = "ours.py", mark: str = "@redaction_hook", count: int = 1
) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(HOOK.format(trace=str(trace(folder)), mark=mark, count=count))
    return path


def trace(folder: Path) -> Path:
    return folder / "was-run"


def write_spec(folder: Path, **redact: str) -> Path:
    folder.mkdir(exist_ok=True)
    lines = ["model: m", f"data: {folder / 'd.csv'}", "redact:"]
    path = folder / "audit.yaml"
    path.write_text("\n".join([*lines, *(f"  {key}: {value}" for key, value in redact.items())]))
    return path


def plan_of(privacy: PrivacyPlan | None) -> AuditPlan:
    return new_plan(privacy=privacy)


def planned(folder: Path) -> PrivacyPlan:
    return load_spec(write_spec(folder, function="ours:names")).privacy_plan()


@pytest.mark.parametrize("module", ["antigravity", "this", "idlelib.idle"])
def test_a_module_that_nobody_allows_is_not_imported(module: str, tmp_path: Path) -> None:
    sys.modules.pop(module, None)
    with pytest.raises(ConfigurationError, match=f"{module} is not"):
        load_spec(write_spec(tmp_path, function=f"{module}:fly")).privacy_plan()
    with pytest.raises(ConfigurationError, match=f"{module} is not"):
        guard_of(plan_of(PrivacyPlan(redact=f"{module}:fly")))
    assert module not in sys.modules


def test_a_module_on_the_path_is_not_imported_unless_the_operator_names_it(tmp_path, monkeypatch):
    folder = tmp_path / "installed"
    write(folder, "theirs_installed.py")
    monkeypatch.syspath_prepend(str(folder))
    for allowed in ("", "theirs", "theirs_installed_2", "theirs_installed.sub", "*", ","):
        monkeypatch.setenv(MODULES, allowed)
        with pytest.raises(ConfigurationError, match=MODULES):
            load_hook("theirs_installed:names")
    assert not trace(folder).exists()
    monkeypatch.setenv(MODULES, "other, theirs_installed")
    assert spans_by(load_hook("theirs_installed:names"), "abc") == ((0, 1),)
    assert trace(folder).exists()


def test_a_package_allows_its_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "theirs_package", "rules.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(MODULES, "theirs_package")
    assert callable(load_hook("theirs_package.rules:names"))


def test_a_file_beside_the_specification_is_run_wherever_the_plan_goes(tmp_path, monkeypatch):
    path = write(tmp_path, count=2)
    found = planned(tmp_path)
    assert (found.redact, found.redact_file) == ("ours:names", str(path))
    stored = stored_again(plan_of(found))
    monkeypatch.chdir("/")
    guard = guard_of(stored)
    assert isinstance(guard, TextGuard)
    hook = load_hook("ours:names", found.redact_file, found.redact_sha256)
    assert spans_by(hook, "abc") == ((0, 2),)
    assert "ours" not in sys.modules


def test_a_file_that_is_not_the_plans_is_not_run(tmp_path: Path) -> None:
    path = write(tmp_path, count=3)
    spec = load_spec(write_spec(tmp_path, function="ours:names"))
    write(tmp_path, count=4)
    with pytest.raises(ConfigurationError, match="of the plan"):
        spec.privacy_plan()
    assert not trace(tmp_path).exists()
    path.unlink()
    with pytest.raises(ConfigurationError, match="no file"):
        spec.privacy_plan()
    path.mkdir()
    with pytest.raises(ConfigurationError, match="no file"):
        spec.privacy_plan()


@pytest.mark.parametrize("mark", ["", "@staticmethod", "# @redaction_hook", "('@redaction_hook')"])
def test_a_file_without_the_mark_is_not_run(tmp_path: Path, mark: str) -> None:
    write(tmp_path, mark=mark)
    with pytest.raises(ConfigurationError, match="is not marked"):
        planned(tmp_path)
    assert not trace(tmp_path).exists()


def test_a_row_of_the_database_runs_no_file_of_the_machine(tmp_path: Path) -> None:
    """Its writer knows the digests of public files, too; none of them bears the mark."""
    file = Path(json.__file__).parent / "tool.py"
    found = hook_file("tool:main", file.parent)
    reported = PrivacyPlan(redact="tool:main", redact_file=str(file), redact_sha256=found[1])
    with pytest.raises(ConfigurationError, match="is not marked"):
        guard_of(plan_of(reported))
    for path in ("ours.py", "/dev/stdin", "/nowhere/ours.py", "a\0b"):
        with pytest.raises(ConfigurationError, match=r"no file|be read"):
            guard_of(plan_of(replace(reported, redact_file=path)))


@pytest.mark.parametrize(
    "text", ["def names(", "x = " + "(" * 5000, "\0", "\xff\xfe", "1" * 5000, "#" * 1_000_001]
)
def test_a_file_that_is_no_module_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "ours.py").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigurationError, match=r"redact: .*ours\.py"):
        planned(tmp_path)


@pytest.mark.parametrize("fault", ["raise SystemExit(3)", "1/0", "import no_such_module_here"])
def test_a_file_that_fails_is_named(tmp_path: Path, fault: str) -> None:
    path = write(tmp_path)
    path.write_text(f"{path.read_text()}\n{fault}\n")
    with pytest.raises(ConfigurationError, match="cannot be run"):
        planned(tmp_path)


def test_only_beside_the_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "elsewhere")
    write(tmp_path / "elsewhere", "dotted.py")
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in ("ours:names", "elsewhere.dotted:names"):
        with pytest.raises(ConfigurationError, match="is not imported"):
            load_spec(write_spec(tmp_path, function=name)).privacy_plan()
    with pytest.raises(ConfigurationError, match="is not imported"):  # no file of a specification
        load_spec(None, {"model": "m", "data": "d"}, ["redact=ours:names"]).privacy_plan()
    file = tmp_path / "elsewhere" / "ours.py"
    with pytest.raises(SpecError, match="found, not given"):
        load_spec(write_spec(tmp_path, function="ours:names", file=str(file)))
    assert not trace(tmp_path / "elsewhere").exists()


def test_a_schedule_keeps_the_file_and_its_digest(tmp_path: Path) -> None:
    path = write(tmp_path, count=5)
    spec = load_spec(write_spec(tmp_path, function="ours:names")).absolute()
    stored = AuditSpec.model_validate(spec.model_dump(mode="json"))
    assert stored.redact.file == str(path)
    write(tmp_path, count=6)
    with pytest.raises(ConfigurationError, match="`schedule add`"):
        stored.privacy_plan()
    write(tmp_path, count=5)
    assert stored.privacy_plan() == spec.privacy_plan()


def test_numbers_of_scores_are_kept_and_words_of_every_draw_are_not() -> None:
    one_draw = {"class": "good", "words": ["secret", "film"], "relevance": [2.0, 1.0]}
    given = (
        {"pixels": 16, "right": 12, "both": [8, 4], "either": [12, 8], "note": "secret"},
        {"draws": [0.25, 0.75]},
        {"draws": [one_draw, one_draw]},
    )
    scores = tuple(
        MetricScore(
            item_id="i", method="random", target="label", metric=f"m{place}", value=None, detail=one
        )
        for place, one in enumerate(given)
    )
    empty = ShardAggregate().to_json()
    result = replace(make_result(Shard(index=0, start=0, stop=0)), scores=scores, aggregate=empty)
    guard = guard_of(plan_of(PrivacyPlan(store_text="none")))
    counts, values, words = (one.detail for one in guard.storable(result).scores)
    assert counts == {key: value for key, value in given[0].items() if key != "note"}
    assert values == {"draws": [0.25, 0.75]}
    assert [one["class"] for one in words["draws"]] == ["good", "good"]
    assert "secret" not in str(words)
