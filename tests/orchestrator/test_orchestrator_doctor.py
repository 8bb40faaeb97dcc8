"""The verb `doctor`: tables, JSON and exit codes."""

import json
import re
import sys
from pathlib import Path

import pytest
from PIL import Image

from orchestrator.cli.command_line import main


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Run the command line here; gives back its exit code, what it printed and its errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["transexplain", "doctor", *words])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_a_text_model(call, bert_dir: Path, tmp_path: Path) -> None:
    code, printed, _ = call(str(bert_dir))
    assert code == 0, printed
    assert re.search(r"^ *linear +LRP-0 +14 +\d+\.\d\d *$", printed, re.MULTILINE), "biases are 0"
    assert re.search(r"^gap [+-].*: within 5e-06$", printed, re.MULTILINE)
    assert "logits identical to the untouched model's" in printed
    assert re.search(r"explanation .* ms: \d+\.\d\d forwards .*\n.*not measured on CPU", printed)
    assert "Batches: similar lengths, padded" in printed
    assert printed.splitlines()[-1] == "verdict: covered"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert"], "nothing is left behind"


@pytest.mark.exhaustive
def test_a_trace_is_tried_on_request(call, bert_dir: Path) -> None:
    assert "traced" not in call(str(bert_dir))[1]
    code, printed, _ = call(str(bert_dir), "--trace")
    assert code == 0
    assert re.search(
        r"^traced in \d+\.\d s: \d+ operators, \d+ guards?; a replay takes", printed, re.MULTILINE
    )


def test_a_picture_model_at_pixels(call, vit_dir: Path) -> None:
    code, printed, _ = call(str(vit_dir), "--at", "pixels", "--dtype", "float64")
    assert code == 0, printed
    assert "conv2d" in printed
    measured = call(str(vit_dir), "--method", "lrp-ah")[1]
    assert re.search(r"^ *gelu +gradient, measured +2 +[+-]\d\.\d{4} +\d", measured, re.MULTILINE)
    assert re.search(r": within 1e-12$", printed, re.MULTILINE)
    assert "padding" not in printed


def test_json(call, bert_dir: Path) -> None:
    code, printed, _ = call(str(bert_dir), "--json", "--method", "lrp-ah", "--dtype", "bfloat16")
    document = json.loads(printed)
    assert (code, document["verdict"], document["closes"]) == (0, "covered", None)
    assert document["method"] == "lrp-ah"
    assert {use["name"]: use["count"] for use in document["operators"]}["linear"] == 14
    assert document["ledger"]["rules"] != 0


@pytest.mark.exhaustive
def test_the_first_item_of_a_dataset(call, bert_dir: Path, vit_dir: Path, tmp_path: Path) -> None:
    rows = '{"text": "a nice film"}\n{"text": "good"}\n'
    (tmp_path / "texts.jsonl").write_text(rows, encoding="utf-8")
    assert "5 positions" in call(str(bert_dir), "--data", "texts.jsonl")[1]
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    Image.linear_gradient("L").save(pictures / "a.png")
    assert call(str(vit_dir), "--data", "imagefolder:pictures")[0] == 0
    code, _, printed = call(str(vit_dir), "--data", "texts.jsonl")
    assert code == 2
    assert "the model reads image" in printed
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n', encoding="utf-8")
    code, _, printed = call(str(bert_dir), "--data", "empty.jsonl")
    assert code == 2
    assert "the first item of 'empty.jsonl' cannot be read" in printed


def test_operators_that_are_not_covered_are_listed(
    call, bert_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transexplain.engine import mode, operators

    for table in (mode.KIND, operators.KIND):
        monkeypatch.delitem(table, "gelu", raising=False)
    code, printed, _ = call(str(bert_dir))
    assert code == 1
    line = next(line for line in printed.splitlines() if line.startswith("not covered: "))
    assert re.fullmatch(
        r"not covered: gelu, 2 x, activations\.py:\d+ in \w+, "
        r"bert\.encoder\.layer\.0\.intermediate\.intermediate_act_fn and 1 more: "
        r"no rule knows it",
        line,
    ), line
    assert "methods that need no rule for it: " in printed
    assert "random" in printed
    assert printed.splitlines()[-1] == "verdict: not covered: gelu"
    code, printed, _ = call(str(bert_dir), "--json")
    assert code == 1
    uncovered = json.loads(printed)["uncovered"]
    assert [one["operator"] for one in uncovered] == ["gelu", "gelu"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("./absent",), "there is no model directory './absent'"),
        (("bert", "--method", "lpr"), "lpr"),
        (("bert", "--at", "pixels"), "it has: encoder, words"),
        (("bert", "--dtype", "int8"), "float64"),
        (("bert", "--data", "absent.csv"), "absent.csv"),
    ],
)
def test_bad_requests(call, bert_dir: Path, words: tuple[str, ...], message: str) -> None:
    code, _, printed = call(*words)
    assert code == 2
    assert message in printed
    assert "Traceback" not in printed
