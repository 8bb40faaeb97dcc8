"""A `transexplain run` over generated texts, beside `te.explain_iter` over the same ones."""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import transformers
from sqlalchemy import text
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

import transexplain as te
from benchmarks.engine_models import Setting, build
from benchmarks.gpu_shapes import last_rate
from benchmarks.gpu_sheet import Figures, Sheet
from benchmarks.pipeline_log import measured, prepare_log
from transexplain.explaining.explain_request import read_together
from transexplain.models.loaded_model import LoadedModel
from transexplain.store.revisions import open_database

PART = "a run, end to end"
_ROOT = Path(__file__).resolve().parents[1]
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_WORDS = 90  #: the toy model has room for 100 pieces
_PATIENCE = 150.0


def run_rows(sheet: Sheet, setting: Setting, texts: int) -> None:
    """The same texts by `te.explain_iter`, and by a run with its store and statistics."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        try:
            _prepare(folder, setting, texts)
        except Exception as error:  # noqa: BLE001 - becomes a row
            sheet.add(PART, "model and texts", {"status": f"failed: {error}"[:200]})
            return
        alone = partial(_alone, folder, setting)
        sheet.row(PART, f"te.explain_iter, {texts} texts", alone)
        sheet.row(PART, f"transexplain run, {texts} texts", partial(_run, folder, setting))


def _prepare(folder: Path, setting: Setting, texts: int) -> None:
    """Write the model of BERT-base shape, its tokenizer, the texts and the audit."""
    words = [f"word{index}" for index in range(_WORDS)]
    pieces = {piece: index for index, piece in enumerate([*_SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(pieces, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{name}_token": _SPECIAL[place] for name, place in special.items()},
    ).save_pretrained(folder / "model")
    module: Any = build("bert-base", setting).module
    module.save_pretrained(folder / "model")
    chosen = random.Random(0)
    with (folder / "texts.jsonl").open("w", encoding="utf-8") as file:
        for _ in range(texts):
            line = " ".join(chosen.choices(words, k=chosen.randint(5, 28)))
            file.write(json.dumps({"text": line}) + "\n")
    audit = {
        "name": "benchmark",
        "model": {
            "source": str(folder / "model"),
            "device": setting.device,
            "dtype": setting.dtype,
        },
        "data": str(folder / "texts.jsonl"),
        "evaluation": {"items": 0},
        "shard_size": max(1, texts // 5),
    }
    (folder / "audit.yaml").write_text(json.dumps(audit), encoding="utf-8")  # JSON is YAML


def _texts(folder: Path) -> Iterator[str]:
    with (folder / "texts.jsonl").open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)["text"]


def _alone(folder: Path, setting: Setting) -> Figures:
    model = te.load_model(str(folder / "model"), device=setting.device, dtype=setting.dtype)
    begun = time.perf_counter()
    moments = [time.perf_counter() for _ in te.explain_iter(model, _texts(folder))]
    later = last_rate(moments, begun, read_together(model))
    return {
        "per_second": len(moments) / (moments[-1] - begun),
        "later_per_second": later,
        "note": f"the last ones {later:,.0f}/s; steps {_ran(model)}",
    }


def _ran(model: LoadedModel) -> str:
    return "+".join(model.steps["steps"].ran())


def _run(folder: Path, setting: Setting) -> Figures:
    url = f"sqlite:///{folder}/store.db"
    with open_database(url, upgrade=True) as db:
        prepare_log(db)
        started = time.time()
        command = [sys.executable, "-m", "orchestrator.cli", "run", str(folder / "audit.yaml")]
        done = subprocess.run(
            [*command, "--quiet", "--out", str(folder / "audits")],
            cwd=folder,
            env=_environment(folder, url),
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        wall = time.time() - started
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["it ended"])[-1])
        with db.read() as connection:
            run_id = connection.execute(text("SELECT id FROM run")).scalar_one()
        found = measured(db, run_id, started)
    return {
        "per_second": found.rate,
        "wall_seconds": wall,
        "note": f"from the first batch to the last commit; {wall:.1f} s in all with start "
        f"{found.start:.1f} s, loading {found.load:.1f} s and the report",
    }


def _environment(folder: Path, url: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]),
        "TRANSEXPLAIN_DATABASE_URL": url,
        "TRANSEXPLAIN_SNAPSHOT_DIR": str(folder / "snapshots"),
    }
