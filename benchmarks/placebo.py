"""Randomly sampled lexicons over the stored relevance of a real run: how often they accuse.

    python -m benchmarks.placebo RUN [--db URL] [--lexicons N] [--permutations N]

The entities that the run's texts mention are dealt out to its groups at random, and judged by the
run's own rules. Aims: an unadjusted p of at most 0.05 in 3 to 8 %, the verdict *difference* in at
most 1 %.
"""

import argparse
import math
import time

from transexplain.analysis.groups.group_cells import cells_of
from transexplain.analysis.groups.group_controls import placebo
from transexplain.analysis.groups.group_table import Rules
from transexplain.reports.report_section import merged
from transexplain.settings import Settings
from transexplain.store import runs
from transexplain.store.revisions import open_database


def main() -> None:
    """Parse, deal out, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run")
    parser.add_argument("--db", default=Settings.from_environment().database_url)
    parser.add_argument("--lexicons", type=int, default=500)
    parser.add_argument("--permutations", type=int, default=999)
    options = parser.parse_args()
    with open_database(options.db) as db:
        run = runs.get(db, options.run)
        cells = cells_of(merged(db, run.id).entities)
    plan = run.plan
    rules = Rules(
        reference=plan.reference,
        groups=tuple(group.name for group in plan.groups),
        practical=plan.practical,
        correction=plan.correction,
        permutations=options.permutations,
    )
    begun = time.perf_counter()
    found = placebo(cells, rules, options.lexicons)
    print(
        f"run {run.id}: {found.lexicons} random lexicons, {found.comparisons} comparisons, "
        f"{time.perf_counter() - begun:.0f} s"
    )
    print(f"unadjusted p at most 0.05   {_share(found.below, found.comparisons)}   aim 3 to 8 %")
    print(f"verdict difference          {_share(found.differences, found.comparisons)}   aim 1 %")


def _share(count: int, total: int) -> str:
    if not total:
        return "nothing could be compared"
    share = count / total
    return f"{100 * share:.2f} % +-{100 * math.sqrt(share * (1 - share) / total):.2f}"


if __name__ == "__main__":
    main()
