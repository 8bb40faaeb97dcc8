"""Is an explainer that learns faithful, and is it better trained with its classifier or after it?

    python -m benchmarks.training_study --shared FOLDER --out FOLDER

Stage 1 trains a small BERT, a small ViT and a small distilled DeiT from drawn weights on one part
of SST-2 (phrases) and CIFAR-10 (half of the pictures); stage 2 fine-tunes each on another part
(20,000 sentences, the other half), separately and jointly, with several seeds: `--protocol quick`
by the presets `quick-*` with higher rates and fewer epochs, `--protocol paper` by the presets of
the paper's Table 2 as they are; `--sample` cuts the examples, never the epochs. Each run is one
process of one thread. What is measured comes from SST-2 dev and CIFAR-10 test, which nothing was
trained or chosen on. What is there already is not done again, so the study goes on where it was
interrupted. Prints tables as the paper's 3 to 5; every run has its curves beside it
(the paper's Figure 10).
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.training_study_data import (
    write_pictures,
    write_random_bert,
    write_random_vision,
    write_texts,
)
from benchmarks.training_study_measures import measure
from benchmarks.training_study_tables import tables

KINDS, MODES = ("bert", "vit", "deit-distilled"), ("separate", "joint")
#: stage 1, from drawn weights
_BACKBONE: dict[str, dict[str, Any]] = {
    "text": {"epochs": 3, "batch_size": 64, "learning_rate": 1e-3},
    "vision": {
        "epochs": 20,
        "batch_size": 64,
        "learning_rate": 2e-3,
        "weight_decay": 0.05,
        "augment": True,
        "label_smoothing": 0.1,
    },
}
#: stage 2, over the presets: small models with few layers bear higher rates and fewer epochs
_TUNED: dict[str, dict[str, Any]] = {
    "text": {"epochs": 3, "batch_size": 64, "learning_rate": 4e-4},
    "vision": {"epochs": 4, "batch_size": 64, "learning_rate": 7e-4},
}
_STAGES = {"head_epochs": 1, "interval_epochs": 1, "layers_per_interval": 2, "embeddings": False}


@dataclass(frozen=True)
class Protocol:
    """How stage 2 is done."""

    name: str = "quick"  #: or `paper`
    sample: int | None = None  #: examples of stage 2; None: all
    backbone_epochs: int | None = None  #: of stage 1; None: as in `_BACKBONE`

    @property
    def prefix(self) -> str:
        """Of the names of its folders, so that runs of several protocols stand side by side."""
        cut = "" if self.sample is None else f"{self.sample}-"
        return f"{'' if self.name == 'quick' else f'{self.name}-'}{cut}"

    @property
    def options(self) -> list[str]:
        """As the command line has it."""
        cut = {"--sample": self.sample, "--backbone-epochs": self.backbone_epochs}
        given = [(name, str(value)) for name, value in cut.items() if value is not None]
        return ["--protocol", self.name, *(word for pair in given for word in pair)]


def main() -> None:
    """Read the command line and do what is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, help="folder with text/ and images/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--protocol", choices=("quick", "paper"), default="quick")
    parser.add_argument("--sample", type=int, help="examples of stage 2; default: all")
    parser.add_argument("--backbone-epochs", type=int, help="of stage 1; default: 3 and 20")
    parser.add_argument("--tables", action="store_true", help="print the tables of what is there")
    parser.add_argument("--one", nargs="+", help="KIND [MODE SEED]: one run, in this process")
    given = parser.parse_args()
    protocol = Protocol(given.protocol, given.sample, given.backbone_epochs)
    if given.one:
        _run_one(given.out, given.one, protocol)
        return
    if not given.tables:
        _prepare(given.shared, given.out, given.kinds)
        _all(given.out, [[kind] for kind in given.kinds], given.processes, protocol)
        runs = [
            [kind, mode, str(seed)]
            for seed in range(given.seeds)
            for kind in given.kinds
            for mode in reversed(MODES)
        ]
        _all(given.out, runs, given.processes, protocol)
    sys.stdout.write(tables(given.out, given.kinds, MODES, given.seeds, protocol.prefix))


def _prepare(shared: Path, out: Path, kinds: Sequence[str]) -> None:
    texts, pictures = out / "sst2", out / "cifar10"
    if "bert" in kinds and not (texts / "dev.tsv").is_file():
        write_texts(shared, texts)
    if not (pictures / "test").is_dir():
        write_pictures(shared, pictures)
    classes = sorted(path.name for path in (pictures / "test").iterdir())
    for kind in kinds:
        folder = out / kind / "drawn"
        if (folder / "model.safetensors").is_file():
            continue
        if kind == "bert":
            write_random_bert(folder, texts / "phrases.tsv", 0)
        else:
            write_random_vision(folder, kind, classes, 0)


def _all(out: Path, runs: Iterable[Sequence[str]], processes: int, protocol: Protocol) -> None:
    """Each run in a process of its own, some at a time."""

    def one(words: Sequence[str]) -> int:
        command = [sys.executable, "-m", "benchmarks.training_study", "--out", str(out)]
        given = [*protocol.options, "--one", *words]
        return subprocess.run([*command, *given], check=False).returncode

    with ThreadPoolExecutor(processes) as pool:
        failed = sum(code != 0 for code in list(pool.map(one, runs)))
    if failed:
        raise SystemExit(f"{failed} runs failed; their errors are above. Run again to go on")


def _run_one(out: Path, words: Sequence[str], protocol: Protocol) -> None:
    import torch

    torch.set_num_threads(1)
    kind, *rest = words
    folder = out / kind / ("backbone" if not rest else protocol.prefix + "-".join(rest))
    if (folder / "measured.json").is_file():
        return
    begun = time.perf_counter()
    spec = (
        stage_two(out, kind, rest[0], int(rest[1]), protocol)
        if rest
        else stage_one(out, kind, protocol)
    )
    trained = _train({**spec, "output": str(folder)}, out, folder.name)
    seconds = time.perf_counter() - begun
    found = measure(out, kind, trained) if rest else {}
    found |= {"seconds": seconds, "validation": dict(trained.metrics)}
    (folder / "measured.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def stage_one(out: Path, kind: str, protocol: Protocol) -> dict[str, Any]:
    """The specification of a backbone's training."""
    part = "text" if kind == "bert" else "vision"
    epochs = protocol.backbone_epochs or _BACKBONE[part]["epochs"]
    return {
        "model": str(out / kind / "drawn"),
        **_data(out, kind, "phrases.tsv", "first"),
        "validation": {"share": 0.05},
        "stages": "none",
        "optimisation": {**_BACKBONE[part], "epochs": epochs},
    }


def stage_two(out: Path, kind: str, mode: str, seed: int, protocol: Protocol) -> dict[str, Any]:
    """The specification of a fine-tuning with an explainer."""
    part = "text" if kind == "bert" else "vision"
    data = _data(out, kind, "sentences.tsv", "second")
    if protocol.sample is not None:
        data["data"] = {"source": data["data"], "sample": protocol.sample}
    shared = {"model": str(out / kind / "backbone" / "model"), **data, "seed": seed}
    if protocol.name == "paper":
        return {"preset": f"{mode}-{part}", **shared}
    tuned = _TUNED[part]
    return {
        **shared,
        "preset": f"quick-{mode}-{part}",
        "stages": _STAGES,
        "optimisation": {**tuned, "patience": None},
        # as many epochs for the explainer alone as it has beside the classifier
        "explainer": {"epochs": tuned["epochs"], "batch_size": tuned["batch_size"]},
    }


def _data(out: Path, kind: str, texts: str, pictures: str) -> dict[str, Any]:
    if kind == "bert":
        labels = {"0": "negative", "1": "positive"}
        return {"data": str(out / "sst2" / texts), "labels": labels}
    return {"data": f"imagefolder:{out / 'cifar10' / pictures}"}


def _train(spec: dict[str, Any], out: Path, name: str) -> Any:
    """Train as the command line does."""
    import yaml

    from transexplain.extras.training.train_command import load_training, train_spec
    from transexplain.extras.training.training_plans import FitObserver
    from transexplain.settings import Settings

    class Said(FitObserver):
        """Prints the measures of every epoch."""

        def validated(self, epoch: int, metrics: Any) -> None:
            reported = ", ".join(f"{key} {value:.4f}" for key, value in metrics.items())
            print(f"{spec['output']}: epoch {epoch}: {reported}", flush=True)

    path = out / "specs" / f"{Path(spec['output']).parent.name}-{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    settings = Settings(snapshot_dir=out / "snapshots")
    return train_spec(load_training(path), settings, Said())


if __name__ == "__main__":
    main()
