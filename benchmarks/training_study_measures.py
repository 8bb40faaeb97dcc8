"""What the training study measures of one trained classifier and its explainer."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXTS, PICTURES = 300, 100  #: items whose explanations are measured
_TIMED, _BATCH, _ROUNDS = 256, 32, 5
METRICS = ("fidelity", "comprehensiveness", "sufficiency", "sparsity", "activation")


def measure(out: Path, kind: str, trained: Any) -> dict[str, Any]:
    """Accuracy, the metrics of both methods, their agreement, and what they cost."""
    import transexplain as te
    from transexplain.data.snapshot import prepare
    from transexplain.extras.learned.explainer_training import Teacher, agreement_of, taught_by
    from transexplain.extras.training.examples import read_examples
    from transexplain.extras.training.optimisation import classified
    from transexplain.types.plans import DatasetSpec
    from transexplain.types.scores import MethodSpec

    model = te.load_model(trained.model)
    text = kind == "bert"
    source = str(out / "sst2" / "dev.tsv") if text else f"imagefolder:{out / 'cifar10' / 'test'}"
    labels = {"0": "negative", "1": "positive"} if text else {}
    ref = prepare(DatasetSpec(source=source), out / "snapshots")
    examples = read_examples(model, ref, labels=labels)
    params = {"explainer": str(trained.explainer)}
    _, measured = examples.split((TEXTS if text else PICTURES) / len(examples), 0)
    items = [
        one.encoded.item.content if text else dict(one.encoded.inputs)
        for one in measured.entries
        if one.encoded is not None
    ]
    tables = te.evaluate(
        model, items, ["lrp", MethodSpec(name="learned", params=params)], list(METRICS)
    )
    agreement = agreement_of(
        model, _explainer(trained), taught_by(Teacher(MethodSpec(), model, classes=1), examples)
    )
    return {
        "accuracy": classified(model, examples, _BATCH)["accuracy"],
        "tested": len(examples),
        "metrics": {table.metric: {row.method: row.mean for row in table.rows} for table in tables},
        "items": len(items),
        "agreement": None if agreement is None else agreement.rank_correlation,
        "agreement_items": None if agreement is None else agreement.items,
        "relative_error": None if agreement is None else agreement.relative_error,
        "cost": _costs(model, examples, params),
        "operations": _facts(trained).forwards,
    }


def _costs(model: Any, examples: Any, params: dict[str, Any]) -> dict[str, float]:
    """Seconds of each method over those of a forward pass: medians of interleaved rounds."""
    import torch

    from transexplain.methods import bound
    from transexplain.types.scores import MethodSpec
    from transexplain.types.targets import ClassNames, parse_target, resolve_target

    rows = range(min(_TIMED, len(examples)))
    batches = [examples.batch(rows[start : start + _BATCH]).batch for start in rows[::_BATCH]]
    target = parse_target("predicted", ClassNames(model.classes))

    def resolve(logits: Any) -> Any:
        return [resolve_target(target, row, model.classes, None) for row in logits]

    def explained(spec: MethodSpec) -> Callable[[], None]:
        run = bound(spec)
        return lambda: [run(model, batch, resolve) for batch in batches] and None

    def forward() -> None:
        with torch.no_grad():
            for batch in batches:
                model.logits(batch)

    contenders = {
        "forward": forward,
        "learned": explained(MethodSpec(name="learned", params=params)),
        "lrp": explained(MethodSpec()),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(_ROUNDS + 1):
        for name, run in contenders.items():
            begun = time.perf_counter()
            run()
            if turn:  # the first round pays for what is lazy
                seconds[name].append(time.perf_counter() - begun)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {name: value / medians["forward"] for name, value in medians.items()}


def _facts(trained: Any) -> Any:
    from transexplain.extras.learned.learned_facts import read_facts

    return read_facts(trained.explainer)


def _explainer(trained: Any) -> Any:
    import torch

    from transexplain.extras.learned.learned_explainer import load

    return load(trained.explainer, dtype=torch.float32, device=torch.device("cpu"))[0]
