"""Optional packages: imported where they are used, and named with their command where missing."""

import ast
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tiny_audit import make_audit

from transexplain.errors import ConfigurationError
from transexplain.methods import METHODS, bound
from transexplain.methods.method_table import TABLE
from transexplain.types.scores import MethodSpec

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {
    extra: {one.name: one for one in map(Requirement, named)}
    for extra, named in PROJECT["optional-dependencies"].items()
}
FEATURES = (
    *("excel", "flow", "large", "mlflow", "molecules", "notebook"),
    *("azure", "gcs", "s3", "serve", "signing", "superpixels", "tracing", "wandb"),
)
OPTIONAL = {
    *("accelerate", "adlfs", "captum", "cryptography", "gcsfs", "gliner", "igraph", "matplotlib"),
    *("mlflow", "openpyxl", "opentelemetry", "pandas", "rdkit", "s3fs", "securesystemslib"),
    *("skimage", "spacy", "starlette", "uvicorn", "wandb", "wordfreq"),
}

Call = Callable[..., tuple[int, str]]


def missing(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)


def test_all_and_dev_have_the_packages_of_the_features() -> None:
    everything = {name: one for extra in FEATURES for name, one in EXTRAS[extra].items()}
    assert EXTRAS["all"] == everything
    for extra in {*FEATURES} - {"mlflow", "wandb"}:
        assert EXTRAS[extra].items() <= EXTRAS["dev"].items()
    required = {Requirement(one).name for one in PROJECT["dependencies"]}
    assert not required & {*everything, "captum"}


def module_level_imports(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.exhaustive
def test_no_module_but_the_pages_begins_with_an_optional_package() -> None:
    found: dict[str, set[str]] = {}
    for package in ("transexplain", "workers", "orchestrator", "migrations"):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            roots = {name.partition(".")[0] for name in module_level_imports(tree)}
            if roots & OPTIONAL:
                found.setdefault(path.parent.name, set()).update(roots & OPTIONAL)
    # nothing but the verb imports them, after it looked for the packages
    assert found == {"serve": {"starlette", "uvicorn"}}


@pytest.mark.parametrize("name", [name for name in METHODS if TABLE[name].needs])
def test_a_method_without_its_package_is_refused_before_it_runs(name: str, monkeypatch) -> None:
    package, extra = TABLE[name].needs or ("", "")
    assert extra in FEATURES
    bound(MethodSpec(name=name))
    missing(monkeypatch, package)
    with pytest.raises(ConfigurationError, match=rf"pip install '\.\[{extra}\]'"):
        bound(MethodSpec(name=name))


@pytest.mark.parametrize("verb", ["validate", "plan", "run"])
def test_verbs_say_it_before_a_model_is_loaded(verb: str, tmp_path, call: Call, monkeypatch):
    def load_model(*_: object, **__: object) -> None:
        raise AssertionError("a model is loaded")

    spec = make_audit(tmp_path, method="attention-flow")
    monkeypatch.setattr("transexplain.models.load.load_model", load_model)
    missing(monkeypatch, "igraph")
    code, printed = call(verb, str(spec))
    assert code == 2 and "pip install '.[flow]'" in printed


def test_an_evaluation_of_named_methods_refuses_and_one_of_all_leaves_out(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(monkeypatch, "igraph")
    spec = make_audit(tmp_path, evaluation={"methods": ["attention-flow"], "metrics": ["pruning"]})
    code, printed = call("plan", str(spec))
    assert code == 2 and "pip install '.[flow]'" in printed
    names = ("attention-flow", "gradient-x-input")
    monkeypatch.setattr("orchestrator.spec.evaluation_section.METHODS", names)
    spec = make_audit(tmp_path, evaluation={"methods": "all", "metrics": ["pruning"]})
    code, printed = call("plan", str(spec))
    assert code == 0, printed
    assert "attention-flow is left" in printed
