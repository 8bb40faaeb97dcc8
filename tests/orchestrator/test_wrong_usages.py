"""Wrong usages of the command line: the message names the error and the remedy; no traceback."""

import os
import shlex
from pathlib import Path

import pytest
from tiny_audit import make_audit
from typer.testing import CliRunner

from orchestrator.cli.command_line import app
from transexplain.errors import TransExplainError

#: what is typed -> words of the answer; exit code 2 unless it is written before them
USAGES = {
    "run --model ./model": "data: is missing",
    "run bad.yaml": "bad.yaml is not valid YAML: line 1, column 9",
    "run list.yaml": "list.yaml holds no mapping; an audit starts with `model:` and `data:`",
    "run empty": "cannot read the audit specification empty: Is a directory",
    "run tiny.yaml --model ./missing": "there is no model directory './missing'",
    "run tiny.yaml --model empty": "holds no config.json. Expected: config.json, model.safetensors",
    "run tiny.yaml --model texts.jsonl": "is a file; give the directory that holds it",
    "run tiny.yaml --model timm:vit_base_patch16_22": "did you mean 'vit_base_patch16_224'?",
    "run tiny.yaml --device cuda:99": "device 'cuda:99' is not there",
    "run tiny.yaml --data empty.csv": "empty.csv is empty; its first line must name the columns",
    "run tiny.yaml --data x.csv": "has no column 'text' or 'sentence'; name the column of the text",
    "run tiny.yaml --data hf:org/name": "a data set of the hub is hf://datasets/ORG/NAME",
    "run tiny.yaml --data https://example.org/x.csv": "is no address that files are read from",
    "run tiny.yaml --data x.docx": "has no known suffix; known: .csv, .tsv, .jsonl, .parquet",
    "run tiny.yaml --data imagefolder:missing": "'missing' is not a folder",
    "run tiny.yaml --data imagefolder:empty": "'empty' holds no pictures (.bmp",
    "run tiny.yaml --set data.encoding=utf-99": "'utf-99' is no encoding that Python knows",
    "run tiny.yaml --set nonsense": "--set 'nonsense' must have the form a.b=value",
    "run tiny.yaml --set labels=index": "a mapping {dataset label: class}, or the word by-index",
    "run tiny.yaml --set labels.1=god": "labels: '1' is mapped to 'god': unknown class 'god'",
    "run tiny.yaml --target top:9": "top:9 must be between 1 and 3, the classes",
    "run tiny.yaml --target contrast:good-god": "names no two known classes",
    "run tiny.yaml --target clas:good": "did you mean 'class:good'? A target is predicted, label",
    "run tiny.yaml --data plain.csv --target label": "no item has one: name their column",
    "run tiny.yaml --set method.params.gama=1": "no parameter 'gama'; did you mean 'gamma'?",
    "run tiny.yaml --method lime --set method.params.samples=many": "not 'many'",
    "run tiny.yaml --lexicon missing.yaml": "missing.yaml: cannot be read: No such file",
    "run tiny.yaml --lexicon groups.json --reference thing": "did you mean 'things'?",
    "run tiny.yaml --reference things": "give groups.lexicon, groups.recogniser,",
    "run tiny.yaml --set groups={}": "groups names nothing to compare",
    "run many.yaml --set groups.column=id": "which has 120 different values",
    "run many.yaml --set groups={} --set data.spans=empty": "no readable item has an entity there",
    "run tiny.yaml --lexicon groups.json --set groups.include=[none]": "groups.include names 'no",
    "run tiny.yaml --lexicon groups.json --set groups.ambiguous=maybe": "groups.ambiguous",
    "run tiny.yaml --lexicon groups.json --set groups.second=absent.json": "absent.json: cannot be",
    "run tiny.yaml --lexicon groups.json --set groups.second=builtin:gender": "has the group 'gen",
    "run tiny.yaml --lexicon builtin:gender --set groups.entity_types=[GPE]": "entity_types is for",
    "run tiny.yaml --lexicon builtin:gender --set groups.ambiguous=recogniser": "recogniser is for",
    "run tiny.yaml --set 'groups.recogniser=\"spacy:\"'": "write spacy:PACKAGE_OR_FOLDER",
    "run found.yaml --set store_text=none": "groups.recogniser is 'entity_recognisers:people'",
    "run found.yaml --set groups.entity_types=[ORG]": "names 'ORG', which",
    "run found.yaml --set groups.include=[entity/ORG]": "groups.include names",
    "run tiny.yaml --long-text widow": "should be 'truncate', 'window' or 'error'",
    "run tiny.yaml --long-text window --window 2": "window: Input should be greater than",
    "run tiny.yaml --processes 0": "Invalid value for '--processes'",
    "run tiny.yaml --quiet --json": "--quiet prints nothing and --json lines of JSON; give one",
    "run tiny.yaml --db nosuch://x": "use sqlite:///FILE or postgresql://",
    "run tiny.yaml --db sqlite:////nonexistent/x.db": "4 unable to open database file",
    "run tiny.yaml --previous nosuch": "no run 'nosuch'; this database holds no runs yet",
    "run tiny.yaml --modle x": "No such option: --modle",
    "explain": "Missing argument 'item'",
    "explain good": "Missing option '--model'",
    "explain good --model ./model --param gamma": "--param 'gamma' is not name=value",
    "explain '' --model ./model": "the text is empty or blank",
    "explain good --model ./model --at word": "no input layer 'word'; it has: encoder, words",
    "explain good --model ./model --palette pink": "known: diverging, blue-red, green-red",
    "explain good --model ./model --method all --param gamma=1": "--param METHOD.gamma=...",
    "doctor": "name one model: transexplain doctor --model MODEL",
    "doctor ./model --dtype float8": "known: float64, float32, bfloat16, float16",
    "status nosuch": "no run 'nosuch'",
    "compare a b": "no run 'a'",
    "gate --policy nosuch.yaml": "cannot read the policy nosuch.yaml: No such file",
    "gate --policy policy.yaml": "min_acuracy: unknown key; did you mean 'min_accuracy'?",
    "export --format html": "unknown export format 'html'",
    "evaluate tiny.yaml --metric acitvation": "did you mean 'activation'?",
    "train nosuch.yaml": "cannot read the training specification nosuch.yaml: No such file",
    "import missing.jsonl": "no file matches 'missing.jsonl'",
    "import texts.jsonl": "Say which column is which with --column",
    "schedule add name tiny.yaml --cron 'every day'": "write minute hour day month weekday",
    "schedule pause nosuch": "no schedule 'nosuch'; there is none yet",
    "db prune --older-than yesterday": "36h, 90d or 12w",
    "worker --devices cpu --device cpu": "give one",
    "worker --modality sound": "known are text, image, nodes",
    "worker --log-format xml": "use text or json",
    "serve --live-seconds 5": "--live-seconds is a limit of --live",
    "serve --live --live-rate 0": "--live-rate",
    "serve --live --live-seconds x": "--live-seconds",
    "serve --host 0.0.0.0": "everybody who reaches this address",
    "serve --port 0": "--port",
    "serve --token-file absent": "cannot be read",
    "serve --db sqlite:///absent.db": "4 has no TransExplain tables yet",
    "rum": "Did you mean 'run'",
}


#: a row with an id, a marked span, and a column of spans that has none
MARKED = '{"text": "a film", "id": "x%d", "things": "[[0, 1, \\"things\\"]]", "empty": null}\n'


#: an audit whose groups are what a recogniser finds
FOUND = "model: ./model\ndata: texts.jsonl\ngroups: {recogniser: 'entity_recognisers:people'}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, data and files that are wrong in one way each."""
    path = tmp_path_factory.mktemp("wrong")
    make_audit(path)
    for name, content in {
        "empty/.keep": "",
        "x.csv": "body,stars\ngood,1\n",
        "plain.csv": "text\ngood\n",
        "x.docx": "x",
        "empty.csv": "",
        "bad.yaml": "model: [",
        "list.yaml": "- a",
        "tiny.yaml": "model: ./model\ndata: texts.jsonl\n",
        "many.yaml": "model: ./model\ndata: {source: many.jsonl, meta: [id]}\n",
        "found.yaml": FOUND,
        "many.jsonl": "".join(MARKED % number for number in range(120)),
        "policy.yaml": "min_acuracy: 1\n",
    }.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(content, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    for name in [one for one in os.environ if one.startswith("TRANSEXPLAIN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRANSEXPLAIN_RECOGNISER_MODULES", "entity_recognisers")


@pytest.mark.parametrize("typed", USAGES)
def test_a_wrong_usage_is_answered(typed: str) -> None:
    number, _, rest = USAGES[typed].partition(" ")
    code, says = (int(number), rest) if number.isdigit() else (2, USAGES[typed])
    done = CliRunner().invoke(app, shlex.split(typed))
    error = done.exception
    assert isinstance(error, TransExplainError | SystemExit), repr(error)
    found = error.exit_code if isinstance(error, TransExplainError) else done.exit_code
    answer = str(error) if isinstance(error, TransExplainError) else done.output
    assert found == code, answer
    assert says in " ".join(answer.split()), answer
    assert not Path("absent.db").exists()
