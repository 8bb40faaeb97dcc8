"""Whether a planted bias is found, and what attribution has to do with swapping the names.

    python -m benchmarks.power_study [--strengths S ...] [--seeds N ...] [--relabellings N]

The demo's classifier is trained with the bias planted at several strengths and audited as in the
demo. *Swapped* is what the bias amounts to, by the model alone: every letter is asked again with
each name of every village, and a name's effect is the mean change of the logit difference against
all names of the reference. *Relevance* is the audit's difference for the same group. An attribution
is no finite difference, so their ratio is printed and not judged. *Ranks* is Spearman's correlation
over names of mean relevance and effect, with percentiles of 2,000 bootstrap samples of names.
*Innocent accused* is how often the other village gets the verdict *difference* when its names and
the reference's are dealt out again.
"""

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from orchestrator.dispatch.local import run_here
from orchestrator.plan import prepare_audit
from transexplain.analysis.groups.group_cells import Cell, cells_of
from transexplain.analysis.groups.group_controls import Placebo, placebo
from transexplain.analysis.groups.group_table import table_of
from transexplain.extras.demo import text_model
from transexplain.extras.demo.demo_run import text_spec
from transexplain.extras.demo.text_model import make_text_demo
from transexplain.randomness import generator
from transexplain.reports.report_section import merged
from transexplain.reports.sections.group_relevance import rules_of
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.revisions import open_database
from transexplain.types.findings import GroupStatistic

_TRAINING, _AUDIT = 2000, 240  #: letters, each in every village
_RESAMPLES = 2_000
_BATCH = 512

Effects = Mapping[str, float]  #: name -> logits


@dataclass(frozen=True, kw_only=True, slots=True)
class Studied:
    """One trained and audited classifier."""

    swapped: float  #: mean effect of the planted names
    planted: GroupStatistic
    innocent: GroupStatistic
    ranks: tuple[float, float, float]  #: correlation and its interval, over all names
    within: tuple[float, float, float]  #: over the planted names alone
    relabelled: Placebo


def study(folder: Path, seed: int, strength: float, relabellings: int) -> Studied:
    """Train, audit, swap."""
    model_dir = make_text_demo(
        folder, seed, training_letters=_TRAINING, audit_letters=_AUDIT, strength=strength
    )
    cell, rows, relabelled = _audited(folder, relabellings)
    effects = swap_effects(model_dir, seed)
    relevance = {row.entity: row.mean for of in cell.groups.values() for row in of}
    planted = [name for name in text_model.NAMES[text_model.PLANTED] if name in relevance]
    return Studied(
        swapped=float(np.mean([effects[name] for name in planted])),
        planted=rows[text_model.PLANTED],
        innocent=rows[text_model.UNBIASED],
        ranks=_ranks(relevance, effects, sorted(relevance)),
        within=_ranks(relevance, effects, planted),
        relabelled=relabelled,
    )


def _audited(folder: Path, relabellings: int) -> tuple[Cell, Mapping[str, GroupStatistic], Placebo]:
    settings = Settings(
        database_url=f"sqlite:///{folder / 'power.db'}", snapshot_dir=folder / "snapshots"
    )
    prepared = prepare_audit(text_spec(folder), settings)
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        run_here(db, run_id, settings, model=prepared.model)
        (cell,) = cells_of(merged(db, run_id).entities)
    rules = rules_of(prepared.plan)
    rows = {row.group: row for row in table_of([cell], rules)}
    alike = {group: cell.groups[group] for group in (text_model.UNBIASED, text_model.REFERENCE)}
    return cell, rows, placebo([replace(cell, groups=alike)], rules, relabellings)


def swap_effects(model_dir: Path, seed: int) -> Effects:
    """Mean change of the logit difference by each name, against all names of the reference."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForSequenceClassification.from_pretrained(model_dir).eval()
    written = text_model.letters(_TRAINING + _AUDIT, seed=seed)[len(text_model.NAMES) * _TRAINING :]
    letters = [one for one in written if one.group == text_model.REFERENCE]
    names = [name for group in text_model.NAMES.values() for name in group]
    texts = [one.text.replace(one.name, name) for one in letters for name in names]
    requested = _differences(model, tokenizer, texts).reshape(len(letters), len(names))
    reference = [names.index(name) for name in text_model.NAMES[text_model.REFERENCE]]
    effects = (requested - requested[:, reference].mean(axis=1, keepdims=True)).mean(axis=0)
    return dict(zip(names, effects.tolist(), strict=True))


def _differences(model: Any, tokenizer: Any, texts: Sequence[str]) -> NDArray[np.float64]:
    import torch

    positive, negative = (
        text_model.CLASSES.index(one) for one in (text_model.POSITIVE, text_model.NEGATIVE)
    )
    found = []
    with torch.inference_mode():
        for start in range(0, len(texts), _BATCH):
            encoded = tokenizer(
                list(texts[start : start + _BATCH]), padding=True, return_tensors="pt"
            )
            logits = model(
                input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"]
            ).logits
            found.append((logits[:, positive] - logits[:, negative]).double().numpy())
    return np.concatenate(found)


def _ranks(
    relevance: Effects, effects: Effects, names: Sequence[str]
) -> tuple[float, float, float]:
    pairs = np.array([(relevance[name], effects[name]) for name in names])
    random = generator("power", len(names))
    draws = [
        float(spearmanr(*pairs[random.integers(len(pairs), size=len(pairs))].T).statistic)
        for _ in range(_RESAMPLES)
    ]
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(spearmanr(*pairs.T).statistic), float(low), float(high)


def main() -> None:
    """Parse, train, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--strengths", type=float, nargs="+", default=[0.25, 0.5, 0.75, 1.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--relabellings", type=int, default=500)
    options = parser.parse_args()
    print(
        f"{'strength':>8}{'seed':>5}{'swapped':>9}{'relevance':>24}{'ratio':>7}{'p':>8} "
        f"{'verdict':14}{'ranks, all names':>22}{'planted names':>22}"
        f"{'innocent':>14}{'innocent accused':>18}"
    )
    for strength in options.strengths:
        for seed in options.seeds:
            with tempfile.TemporaryDirectory() as folder:
                found = study(Path(folder), seed, strength, options.relabellings)
            print(f"{strength:>8g}{seed:>5}{_line(found)}", flush=True)


def _line(found: Studied) -> str:
    row, lots = found.planted, found.relabelled
    difference, interval = row.difference or math.nan, row.difference_interval or (math.nan,) * 2
    accused = lots.differences / lots.comparisons
    return (
        f"{found.swapped:>+9.2f}{difference:>+8.2f} [{interval[0]:+.2f}, {interval[1]:+.2f}]"
        f"{difference / found.swapped:>7.2f}{row.adjusted_p or math.nan:>8.4f} {row.verdict:14}"
        f"{_correlation(found.ranks):>22}{_correlation(found.within):>22}"
        f"{found.innocent.verdict:>14}{100 * accused:>16.1f} %"
    )


def _correlation(found: tuple[float, float, float]) -> str:
    return f"{found[0]:.2f} [{found[1]:.2f}, {found[2]:.2f}]"


if __name__ == "__main__":
    main()
