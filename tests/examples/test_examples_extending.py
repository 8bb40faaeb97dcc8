"""The examples of docs/contribute/extending: each is entered as one line would, and really used."""

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from gallery import Gallery
from jinja2 import ChoiceLoader, FileSystemLoader
from redaction_gaps import gaps
from tiny_audit import make_audit
from tiny_models import bert, wordpiece
from torch import Tensor, nn
from typer.testing import CliRunner

import transexplain as te
from orchestrator.cli import app
from orchestrator.cli.verb_table import VERBS, Entry
from transexplain import methods
from transexplain.data import SOURCES
from transexplain.engine import operators
from transexplain.errors import ConfigurationError, EngineError
from transexplain.evaluating import metrics
from transexplain.evaluating.metrics import METRICS
from transexplain.evaluating.metrics.metric_table import MetricFacts
from transexplain.methods import METHODS
from transexplain.methods.method_table import MethodFacts
from transexplain.models.loaded_model import LoadedModel
from transexplain.reports import exports
from transexplain.reports.exports import EXPORTS, export_run
from transexplain.reports.page import environment
from transexplain.reports.sections import SECTIONS
from transexplain.store.readers import iter_items
from transexplain.store.revisions import open_database

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "extending"
PAGES = ROOT / "docs" / "contribute" / "extending"
TEXTS = ["a nice film. good goods! x", "unbelievably good"]

Call = Callable[..., str]


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example files are modules here; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a verb of the command line here, with a store of its own; gives what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRANSEXPLAIN_DATABASE_URL", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.setenv("TRANSEXPLAIN_SNAPSHOT_DIR", str(tmp_path / "snapshots"))

    def run(*words: str, code: int = 0) -> str:
        found = CliRunner().invoke(app, list(words))
        assert found.exit_code == code, (found.output, found.exception)
        return found.output

    return run


def model_of_texts() -> LoadedModel:
    return te.wrap(bert().double(), tokenizer=wordpiece(), modality="text")


def test_every_example_has_a_page_of_at_most_sixty_lines_that_names_it() -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    named = "\n".join(pages.values())
    for example in EXAMPLES.glob("*.py"):
        assert f"examples/extending/{example.name}" in named
    index = pages["README.md"]
    for name, text in pages.items():
        assert len(text.splitlines()) <= 60, name
        assert name == "README.md" or f"({name})" in index


def test_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    import sentence_occlusion

    place = "sentence_occlusion:explain"
    cost = sentence_occlusion.cost
    facts = MethodFacts(place=place, source="an example", modalities=("text",), cost=cost)
    monkeypatch.setitem(methods.TABLE, "sentence-occlusion", facts)
    monkeypatch.setitem(METHODS._table, "sentence-occlusion", place)
    model = model_of_texts()
    found = te.explain(model, TEXTS, "sentence-occlusion", target="class:0", baseline="mask")
    tokens = [[token for token in one.features if not token.special] for one in found]
    assert [token.start for token in tokens[0]] == [0, 2, 7, 11, 13, 18, 23, 25]
    relevance = found[0].relevance[[not token.special for token in found[0].features]]
    for sentence in (slice(0, 4), slice(4, 7), slice(7, 8)):
        assert len(set(relevance[sentence])) == 1, "a sentence shares its fall equally"
    assert len(set(relevance)) == 3
    masked = "a nice film. good goods! [MASK]"
    fall = found[0].logit - te.explain(model, [masked], "random", target="class:0")[0].logit
    assert relevance[7] == pytest.approx(fall, abs=1e-9)
    alone = te.explain(model, TEXTS[:1], "sentence-occlusion", target="class:0", baseline="mask")
    np.testing.assert_allclose(alone[0].relevance, found[0].relevance, atol=1e-9)


def test_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "top_share:top_share"
    about = {"title": "Top share", "source": "an example", "unit": "share of |relevance|"}
    facts = MetricFacts(place=place, kind="map", better="neither", **about)
    monkeypatch.setitem(metrics.TABLE, "top-share", facts)
    monkeypatch.setitem(METRICS._table, "top-share", place)
    model = model_of_texts()
    (table,) = te.evaluate(model, TEXTS, ["lrp"], ["top-share"])
    (row,) = [row for row in table.rows if row.method == "lrp"]
    shares = []
    for one in te.explain(model, TEXTS):
        sizes = sorted(abs(one.relevance[[not token.special for token in one.features]]))
        shares.append(sum(sizes[-3:]) / sum(sizes))
    assert row.mean == pytest.approx(np.mean(shares), rel=1e-6)
    assert (table.title, table.unit) == (facts.title, facts.unit)


class Blend(nn.Module):
    """A network on nodes that blends two layers by `torch.lerp`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, node_features: Tensor) -> Tensor:
        x = torch.lerp(node_features, torch.tanh(self.inner(node_features)), 0.3)
        return self.head(x.mean(dim=1))


@pytest.fixture
def lerp_entered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Enter the kind and the operator; the loaded rules are forgotten before and after."""
    place = "lerp_rule:lerp"

    def enter() -> None:
        kind = operators.Kind(gradient=place, relevance=place, rescale=place, wording="in parts")
        monkeypatch.setitem(operators.KINDS, "lerp", kind)
        row = operators.Operator(kind="lerp", axis="aligned")
        monkeypatch.setitem(operators.OPERATORS, "lerp", row)
        monkeypatch.setitem(operators.KIND, "lerp", "lerp")
        operators.rules_of_form.cache_clear()

    yield enter
    monkeypatch.undo()
    operators.rules_of_form.cache_clear()


def test_an_operator_rule(lerp_entered: Callable[[], None]) -> None:
    model = te.wrap(Blend().double().eval(), modality="nodes", classes=["no", "yes"])
    graph = {"node_features": np.random.default_rng(0).normal(size=(5, 4))}
    with pytest.raises(EngineError, match="lerp"):
        te.explain(model, [graph])
    lerp_entered()
    for method in ("lrp", "lrp-ah", "gradient-x-input", "chefer-lrp"):
        (found,) = te.explain(model, [graph], method)
        assert found.ledger.relative_gap < 1e-12, method
        assert found.relevance.any()


@pytest.fixture
def run(call: Call, tmp_path: Path, gallery: Gallery) -> Call:
    """As `call`, with one audit of 20 texts in its store."""
    gallery["texts"].copy(tmp_path)
    return call


@pytest.mark.exhaustive
def test_an_export(run: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    run("export", "--format", "text-table", code=1)
    monkeypatch.setitem(EXPORTS._table, "text-table", "text_table:text_table")
    lines = run("export", "--format", "text-table").splitlines()
    assert lines[0].split() == ["label", "predicted", "items"]
    rows = [line.split() for line in lines[1:]]
    assert sum(int(count) for *_, count in rows) == 20
    assert {label for label, *_ in rows} == {"bad", "so-so", "good"}
    monkeypatch.setattr(export_run, "_OF_FINDINGS", (*export_run._OF_FINDINGS, "text-table"))
    redacted = run("export", "--format", "text-table", "--redact", "--min-count", "41")
    assert [line.split()[2:] for line in redacted.splitlines()[1:]] == [["<", "41"]] * len(rows)
    assert "text-table" not in exports.FILES


@pytest.mark.exhaustive
def test_a_section(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import close_answers

    monkeypatch.setitem(SECTIONS._table, "close_answers", "close_answers:SECTION")
    here = [environment().loader, FileSystemLoader(EXAMPLES)]
    monkeypatch.setattr(environment(), "loader", ChoiceLoader(here))
    call("run", str(make_audit(tmp_path, evaluation={"items": 0})))
    (page,) = (tmp_path / "audits").glob("*.html")
    report = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    found = report["sections"]["close_answers"]
    with open_database(f"sqlite:///{tmp_path / 'store.db'}") as db:
        pairs = [sorted(one.logits)[-2:] for one in iter_items(db, report["audited"]["run_id"])]
    close = sum(high - low < close_answers.MARGIN for low, high in pairs)
    assert found == {"items": 40, "close": close}
    assert f"{close} of 40 answers would be others" in page.read_text(encoding="utf-8")
    assert list(gaps(close_answers.CloseAnswers, close_answers.SECTION.redaction)) == []


@pytest.mark.exhaustive
def test_a_data_source(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_audit(tmp_path, items=1)
    folder = tmp_path / "letters"
    for label, text in (("good", "a nice film"), ("bad", "x goods"), ("bad", "")):
        path = folder / label / f"{len(text)}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "bad" / "9.txt").write_bytes(b"\xff\xfe\x00")
    (folder / "elsewhere.txt").symlink_to(tmp_path / "texts.jsonl")
    monkeypatch.setitem(SOURCES._table, "texts", "text_folder:TextFolderSource")
    words = ("--model", str(tmp_path / "model"), "--data", f"texts:{folder}")
    call("run", *words, "--set", "evaluation.items=0", "--set", "tolerance=1")
    call("export", "--format", "csv", "-o", "tables")
    rows = (tmp_path / "tables" / "predictions.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[0] for row in rows[1:]] == ["bad/7.txt", "good/11.txt"]
    failed = (tmp_path / "tables" / "failures.csv").read_text(encoding="utf-8")
    assert "bad/0.txt" in failed and "empty-text" in failed
    assert "bad/9.txt" in failed and "invalid-utf8" in failed
    assert "elsewhere" not in failed


@pytest.mark.usefixtures("run")
def test_a_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    help_ = "List the items whose two highest logits are nearest to each other."
    monkeypatch.setitem(VERBS, "close-calls", Entry("close_calls:close_calls", "Look"))
    again = runpy.run_path(str(ROOT / "orchestrator" / "cli" / "command_line.py"))["app"]
    assert help_ in CliRunner().invoke(again, ["--help"], env={"COLUMNS": "120"}).output

    def verb(*words: str) -> str:
        found = CliRunner().invoke(again, ["close-calls", *words], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.output

    found = json.loads(verb("--top", "5", "--json"))
    margins = [one["margin"] for one in found]
    assert len(margins) == 5
    assert margins == sorted(margins)
    assert min(margins) >= 0
    first = verb("latest", "--top", "1").split()
    assert first[1:] == [found[0]["predicted"], found[0]["id"]]


def test_the_examples_refuse_invalid_input() -> None:
    import top_share

    with pytest.raises(ConfigurationError, match="at least 1"):
        top_share.top_share(None, k=0)  # type: ignore[arg-type]
