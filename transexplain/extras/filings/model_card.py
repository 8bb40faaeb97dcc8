"""Exports a run as a part of a model card: the metadata block, and the section on bias.

Metadata: the keys of Hugging Face's model card specification. Section: "Bias, Risks, and
Limitations" of its annotated template, after Mitchell et al. 2019, "Model Cards for Model
Reporting".
"""

from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from transexplain.extras.filings import bias_scenarios, impact_by_category
from transexplain.reports.exports.export_run import Redaction, explained_summary
from transexplain.reports.exports.run_facts import (
    accuracy,
    checks,
    compared,
    coverage,
    difference,
    errors,
    untested,
    verdicts,
)
from transexplain.reports.phrasing import encodable, markdown_text, method_of, short
from transexplain.reports.report_records import Summary
from transexplain.store.database import Database
from transexplain.types.plans import AuditRun

_TASKS = {"text": "text-classification", "image": "image-classification"}
_ATTRIBUTION = (
    "A difference says what the model's arithmetic used in these items. It does not say why, and "
    "not what the model would have answered had the item been another."
)


def export(db: Database, run: AuditRun, redaction: Redaction | None = None) -> str:
    """Raises ConfigurationError for an evaluation."""
    return render(explained_summary(db, run, redaction, "model card"))


def render(summary: Summary) -> str:
    """The metadata block and the section, in Markdown."""
    block = yaml.safe_dump(metadata(summary), sort_keys=False, allow_unicode=True)
    return "\n".join(["---", block.rstrip(), "---", "", *_section(summary)]) + "\n"


def metadata(summary: Summary) -> dict[str, Any]:
    """The metadata block between the dashes at the top of a model card.

    `model-index` is there only where accuracy was measured, because it may hold no result without
    a metric. Licence and language are for the model's owner to say.
    """
    task = _TASKS.get(summary.audited.modality)
    block: dict[str, Any] = {"tags": ["transexplain", "bias", "explainability"]}
    if task is not None:
        block["pipeline_tag"] = task
    if summary.counts.accuracy is not None and task is not None:
        block["metrics"] = ["accuracy"]
        block["model-index"] = [
            {
                "name": encodable(short(summary.audited.model)),
                "results": [_result(summary, task)],
            }
        ]
    return block


def _result(summary: Summary, task: str) -> dict[str, Any]:
    dataset = encodable(short(summary.audited.dataset))
    return {
        "task": {"type": task},
        "dataset": {"type": dataset, "name": dataset},
        "metrics": [
            {
                "type": "accuracy",
                "value": summary.counts.accuracy,
                "name": f"Accuracy on {summary.counts.labelled} labelled items",
            }
        ],
    }


def _section(summary: Summary) -> Iterator[str]:
    audited = summary.audited
    yield "## Bias, Risks, and Limitations"
    yield ""
    method = method_of(audited.method, summary.approximates)
    explanations = "explanations made elsewhere" if audited.task == "imported" else "explanations"
    yield markdown_text(
        f"From an audit of {explanations} by {method} on {short(audited.dataset)} (run "
        f"{audited.run_id}, model digest {audited.model_digest[:12] or 'unknown'}). "
        f"{coverage(summary)}"
    )
    right = accuracy(summary)
    yield from _list("Accuracy", [f"{right}.", *errors(summary.groups)] if right else [])
    yield from _list("Differences between groups", verdicts(summary.groups, "flagged"))
    rows = [row for row in compared(summary.groups) if row.flagged]
    yield from _list("Where predictions come from", [difference(row, audited) for row in rows])
    if rows:
        yield from ("", _ATTRIBUTION)
    yield from _list("Impact ratios by category of person", impact_by_category.lines(summary))
    yield from _list("No difference that matters", verdicts(summary.groups, "clear"))
    yield from _list("Open", verdicts(summary.groups, "open"))
    yield from _list("Harms that were looked for", bias_scenarios.lines(summary))
    yield from _list("How far the explanations can be trusted", checks(summary))
    yield from _list("Not tested, or not known", untested(summary))


def _list(title: str, lines: Iterable[str]) -> Iterator[str]:
    items = list(lines)
    if items:
        yield from ("", f"### {markdown_text(title)}", "")
        yield from (f"- {markdown_text(line)}" for line in items)
