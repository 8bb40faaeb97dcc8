"""The sentences of reports, comparisons, exports and the gate: wording stands in one file.

After a change of wording, look at what this writes:
`TRANSEXPLAIN_WRITE_SENTENCES=1 python -m pytest tests/reports/test_rendered_sentences.py`.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gallery import Gallery

from orchestrator.gate.policy import Policy
from orchestrator.gate.policy_verdict import checks
from transexplain.reports.evaluation import tabulate
from transexplain.reports.exports.export_run import export
from transexplain.reports.report_records import Summary
from transexplain.reports.runs_compared import compare_runs

FILE = Path(__file__).with_name("rendered_sentences.txt")
REPORTS = ("biased", "unfinished", "compared", "pictures", "filing")
FORMS = {
    "compared": ("markdown", "model-card", "annex-iv"),
    "filing": ("annex-iv", "local-law-144"),
}
POLICY = Policy(
    max_failed=0.01,
    max_truncated=0.0,
    max_gap_above=0,
    min_accuracy=0.99,
    min_class_sensitivity=0.1,
    max_difference=0.1,
    min_impact_ratio=0.8,
    max_rate_difference=0.1,
    max_swap_logit=0.1,
    max_swap_changed=0.1,
    max_swap_probability=0.05,
    forbid_suppressed=True,
    forbid_gaps=True,
)
#: what differs from run to run and from machine to machine
_MOVING = (
    (re.compile(r"\b\d{8}-[0-9a-f]{8}\b"), "RUN"),
    (re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?( UTC)?)?"), "DATE"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "DIGEST"),
    (re.compile(r"(?<=[A-Za-z] )\d+\.\d+\.\d\S*"), "VERSION"),
    (re.compile(r"\d+(\.\d+)? s\b"), "SECONDS"),
)


def of_report(summary: Summary) -> Iterator[str]:
    yield f"{summary.verdict.kind}: {summary.verdict.text}"
    yield from (f"{line.kind}: {line.text}" for line in summary.headline)
    yield from (f"untested: {row.what}: {row.why} [{row.remedy}]" for row in summary.untested)
    yield from (f"note: {note}" for note in summary.notes)


def rendered(gallery: Gallery) -> Iterator[tuple[str, Iterable[str]]]:
    """Title and lines of everything in the file."""
    for name in REPORTS:
        yield f"report of {name}", of_report(gallery.summary(name))
    evaluation = gallery["evaluation"]
    with evaluation.open() as db:
        headline = tabulate(db, evaluation.id).headline
    yield "report of evaluation", (f"{line.kind}: {line.text}" for line in headline)
    compared = gallery["compared"]
    with compared.open() as db:
        headline = compare_runs(db, *compared.runs).headline
    yield "comparison", (f"{line.kind}: {line.text}" for line in headline)
    for name, forms in FORMS.items():
        with gallery[name].open() as db:
            for form in forms:
                text = export(db, gallery[name].id, form, None) or ""
                lines = (line for line in text.splitlines() if line and line[0] not in "|")
                yield f"{form} of {name}", list(lines)
    judged = checks(POLICY, gallery.summary("biased"))
    yield "gate", (f"{'pass' if one.passed else 'FAIL'}: {one.rule}: {one.text}" for one in judged)


def test_the_sentences_are_those_of_the_file(gallery: Gallery) -> None:
    text = "".join(
        f"== {title}\n" + "".join(f"{line}\n" for line in lines)
        for title, lines in rendered(gallery)
    )
    for pattern, instead in _MOVING:
        text = pattern.sub(instead, text)
    if os.environ.get("TRANSEXPLAIN_WRITE_SENTENCES"):
        FILE.write_text(text, encoding="utf-8")
    assert text.splitlines() == FILE.read_text(encoding="utf-8").splitlines()
