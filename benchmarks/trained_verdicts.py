"""What the report's first sentence says of classifiers whose bias is known.

    python -m benchmarks.trained_verdicts [--models N] [--first N] [--designs NAME ...]
                                          [--start DIR] [--processes N]
                                          [--json FILE | --table FILE]

Small BERTs of three sizes are trained from scratch on made-up applications that name people of two
groups (`verdict_corpora`): without any bias, with a bias by name of four strengths, with a proxy
word, with opposite biases in two strata, and without bias in corpora that mislead (one group
twenty times rarer, authors who each favour a group, near-duplicates, five names a text). Names are
one piece or several, weight decays differ. With `--start` all weights of a trained model are
fine-tuned instead. Each classifier is audited as `transexplain run` does,
and its truth is measured by putting every name into 100 of the texts and by counting its answers.

Printed for each design: the truth (median over models) and the verdicts. A model is *biased* where
swapping names moves the answer by at least 0.25 logit, in all texts or in one stratum, or where
the impact ratio is below 0.8; *sound* where no swap reaches 0.1 logit and the impact ratio is at
least 0.8; the others count for neither. Shares have 95 % Wilson intervals. `--table FILE` prints
the tables of what was written before.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, get_args

from benchmarks.verdict_corpora import (
    CLASSES,
    DESIGNS,
    FIRST,
    INVITED,
    REJECTED,
    SECOND,
    People,
    applications,
)
from benchmarks.verdict_models import (
    SIZES,
    Recipe,
    Size,
    Truth,
    train,
    truth_of,
    write_csv,
    write_lexicon,
)
from transexplain.analysis.groups.group_verdicts import Mentioned, Outcomes
from transexplain.analysis.groups.intervals import wilson

TRAINING, AUDITED, ASKED = 2_400, 480, 100  #: texts
DECAYS = (0.0, 0.01, 0.1)
WORDS = (
    *(f"mention {word}" for word in get_args(Mentioned)),
    *(f"outcome {word}" for word in get_args(Outcomes)),
)
MATTERS, HARMLESS, FOUR_FIFTHS = 0.25, 0.1, 0.8


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One classifier: what it does, and what the report says."""

    design: str
    recipe: Recipe
    truth: Truth
    kind: str  #: of the first sentence
    sentence: str
    mention: str  #: the verdict on the first group against the second
    outcome: str
    effect: float | None  #: measured by swapping, in logits
    relevance: str  #: verdict of the group table
    difference: float | None  #: of relevance
    seconds: float

    @property
    def biased(self) -> bool:
        """Whether somebody would have to act."""
        effects = (self.truth.effect, *self.truth.effects.values())
        return max(map(abs, effects)) >= MATTERS or self.truth.impact_ratio < FOUR_FIFTHS

    @property
    def sound(self) -> bool:
        """Whether neither swaps nor rates show anything."""
        effects = (self.truth.effect, *self.truth.effects.values())
        return max(map(abs, effects)) < HARMLESS and self.truth.impact_ratio >= FOUR_FIFTHS

    @property
    def direct(self) -> bool:
        """Whether names move the answer, in all texts taken together."""
        return abs(self.truth.effect) >= MATTERS

    @property
    def accused(self) -> bool:
        """Whether the report says that groups are treated differently."""
        return self.mention == "changes" or self.outcome == "differ"

    @property
    def words(self) -> tuple[str, str]:
        """The answers to both questions, as columns are headed."""
        return f"mention {self.mention}", f"outcome {self.outcome}"

    @property
    def cleared(self) -> bool:
        """Whether the report says that they do not."""
        return self.kind == "clear"

    @property
    def right_sign(self) -> bool:
        """Whether the mention is said to change the prediction, the way that it does."""
        same = (self.effect or 0.0) * self.truth.effect > 0.0
        return self.mention == "changes" and same


def judged(task: tuple[str, Recipe]) -> Judged:
    """Make the corpus, train, measure, audit."""
    import torch

    torch.set_num_threads(1)
    design, recipe = task
    begun = time.perf_counter()
    people = People.drawn(recipe.seed)
    make = partial(applications, people=people, design=DESIGNS[design])
    learnt = make(TRAINING, seed=f"{design} {recipe.seed} training")
    texts = make(AUDITED, seed=f"{design} {recipe.seed} audit")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = train(learnt, people, folder, recipe)
        truth = truth_of(model, people, texts, ASKED)
        write_csv(folder / "audit.csv", texts)
        write_lexicon(folder / "names.yaml", people)
        found = _audited(model, folder)
    return Judged(
        design=design, recipe=recipe, truth=truth, seconds=time.perf_counter() - begun, **found
    )


def _audited(model: Path, folder: Path) -> dict[str, Any]:
    """The first sentence of the report, and the row of its group table."""
    from orchestrator.dispatch.local import run_here
    from orchestrator.plan import prepare_audit
    from orchestrator.spec import AuditSpec
    from transexplain.reports.summary import summarise, verdict
    from transexplain.settings import Settings
    from transexplain.store import runs
    from transexplain.store.revisions import open_database

    settings = Settings(
        database_url=f"sqlite:///{folder / 'runs.db'}", snapshot_dir=folder / "snapshots"
    )
    audit = AuditSpec.model_validate(
        {
            "name": "verdicts",
            "model": str(model),
            "data": {
                "source": str(folder / "audit.csv"),
                "id": "id",
                "meta": ["post"],
                "cluster": "author",
            },
            "targets": [f"contrast:{INVITED}-{REJECTED}"],
            "groups": {
                "lexicon": str(folder / "names.yaml"),
                "reference": SECOND,
                "slice": "post",
            },
            "evaluation": {"items": 0},
        }
    )
    prepared = prepare_audit(audit, settings)
    with open_database(settings.database_url, upgrade=True) as db:
        run_id = runs.create(db, prepared.plan, prepared.shards)
        run_here(db, run_id, settings, model=prepared.model)
        summary = summarise(db, run_id, gallery=0)
    headline = verdict(summary)
    rows = summary.groups.rows if summary.groups else ()
    [row] = [one for one in rows if one.group == FIRST] or [None]
    verdicts = summary.groups.verdicts if summary.groups else ()
    [found] = [one for one in verdicts if one.group == FIRST] or [None]
    swap = found.counterfactual if found else None
    return {
        "kind": headline.kind,
        "sentence": headline.text,
        "mention": found.mention if found else "absent",
        "outcome": found.outcome if found else "absent",
        "effect": swap.effect if swap else None,
        "relevance": row.verdict if row else "absent",
        "difference": row.difference if row else None,
    }


def tasks(
    models: int, designs: Sequence[str], first: int = 0, start: str = ""
) -> Iterator[tuple[str, Recipe]]:
    """`models` classifiers a design: sizes, names and decays in turn, seeds from 0.

    With `start`, the directory of a trained model, all are fine-tuned from it in one way.
    """
    kinds = list(product(SIZES, (False, True), DECAYS))
    for number in range(first, models):
        size, whole, decay = kinds[(7 * number) % len(kinds)]
        made = Recipe(size=size, whole_names=whole, decay=decay, seed=number)
        if start:
            made = Recipe(size=None, whole_names=False, decay=0.01, seed=number, start=start)
        for design in designs:
            yield design, made


def main() -> None:
    """Parse, train, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", type=int, default=19, help="of each design")
    parser.add_argument("--first", type=int, default=0, help="leave out so many of each")
    parser.add_argument("--designs", nargs="*", choices=list(DESIGNS), default=list(DESIGNS))
    parser.add_argument("--start", default="", help="directory of a model to fine-tune")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write a line for each classifier")
    parser.add_argument("--table", type=Path, help="no training: the tables of such a file")
    options = parser.parse_args()
    if options.table:
        for line in table(list(_read(options.table))):
            print(line)
        return
    assert set(CLASSES) == {INVITED, REJECTED}
    found: list[Judged] = []
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        work = tasks(options.models, options.designs, options.first, options.start)
        for one in pool.imap(judged, work):
            found.append(one)
            if options.json:
                with options.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(one)) + "\n")
    for line in table(found):
        print(line)


def _read(path: Path) -> Iterator[Judged]:
    """What `--json` wrote."""
    for line in path.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        recipe, size = one["recipe"], one["recipe"]["size"]
        recipe["size"] = Size(**size) if size else None
        yield Judged(**{**one, "recipe": Recipe(**recipe), "truth": Truth(**one["truth"])})


def table(found: Sequence[Judged]) -> Iterator[str]:
    """The matrix, and the shares that matter."""
    yield (
        f"{'design':14}{'models':>7}{'swap':>8}{'office':>8}{'shop':>8}{'impact':>8}{'right':>7}"
        + "".join(f"{word:>24}" for word in WORDS)
        + f"{'cleared':>9}{'s':>6}"
    )
    for design in dict.fromkeys(one.design for one in found):
        yield _row(design, [one for one in found if one.design == design])
    proxy = [one for one in found if one.design == "proxy" and one.biased and not one.direct]
    sound = [one for one in found if one.sound]
    biased = [one for one in found if one.biased]
    direct = [one for one in found if one.direct]
    yield ""
    yield _share("sound models accused", sum(one.accused for one in sound), len(sound))
    yield _share("biased models cleared", sum(one.cleared for one in biased), len(biased))
    yield _share("direct biases found", sum(one.right_sign for one in direct), len(direct))
    named = sum(one.outcome == "differ" for one in proxy)
    yield _share("proxies named so", named, len(proxy))
    yield ""
    yield f"{'truth':22}" + "".join(f"{word:>24}" for word in WORDS)
    for name, models in _truths(found).items():
        counts = Counter(word for one in models for word in one.words)
        yield f"{name:22}" + "".join(f"{counts[word]:>24}" for word in WORDS)
    yield ""
    for design in dict.fromkeys(one.design for one in found):
        of = [one for one in found if one.design == design and one.sound]
        if of:
            yield _share(f"sound, {design}, accused", sum(one.accused for one in of), len(of))


def _truths(found: Sequence[Judged]) -> dict[str, list[Judged]]:
    """Models by what is true of them."""
    names = ("sound", "direct", "biased otherwise", "between")
    kinds: dict[str, list[Judged]] = {name: [] for name in names}
    for one in found:
        name = "direct" if one.direct else "biased otherwise" if one.biased else ""
        kinds[name or ("sound" if one.sound else "between")].append(one)
    return kinds


def _row(design: str, models: Sequence[Judged]) -> str:
    truths = [one.truth for one in models]
    verdicts = Counter(word for one in models for word in one.words)
    effects = [median(one.effect for one in truths)]
    effects += [median(one.effects[post] for one in truths) for post in ("office", "workshop")]
    cells = "".join(f"{effect:>+8.2f}" for effect in effects)
    return (
        f"{design:14}{len(models):>7}{cells}{median(one.impact_ratio for one in truths):>8.2f}"
        f"{median(one.accuracy for one in truths):>7.2f}"
        + "".join(f"{verdicts[word]:>24}" for word in WORDS)
        + f"{sum(one.cleared for one in models):>9}{median(one.seconds for one in models):>6.0f}"
    )


def _share(what: str, count: int, total: int) -> str:
    if not total:
        return f"{what:24} none to judge"
    low, high = wilson(count, total)
    return f"{what:24}{count:>5} of {total:<5} {100 * low:.1f} to {100 * high:.1f} %"


if __name__ == "__main__":
    main()
