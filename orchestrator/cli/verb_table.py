"""The verbs that exist: one line each; a verb is a function, and its parameters are its options."""

from collections.abc import Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """Where a verb is, and the first paragraph of its docstring."""

    place: str  #: `module:function`, imported on first use
    help: str


VERBS: Mapping[str, Entry] = {
    "demo": Entry(
        "orchestrator.cli.train_commands:demo",
        "Train a small text and a small image model here, audit both, and write their reports.",
    ),
    "validate": Entry(
        "orchestrator.cli.run_commands:validate",
        "Check an audit without running it: model, data, targets, lexicon, one item explained.",
    ),
    "plan": Entry(
        "orchestrator.cli.run_commands:plan", "Check an audit and say what it would do and cost."
    ),
    "run": Entry("orchestrator.cli.run_commands:run", "Run an audit here and write its report."),
    "submit": Entry(
        "orchestrator.cli.run_commands:submit", "Put an audit on the queue for workers."
    ),
    "resume": Entry(
        "orchestrator.cli.run_commands:resume",
        "Continue a run: finished shards stay, the others are worked on, dead ones once more.",
    ),
    "retry": Entry(
        "orchestrator.cli.run_commands:retry",
        "Work once more on dead shards and, with --failed, on shards that hold failed items.",
    ),
    "cancel": Entry(
        "orchestrator.cli.run_commands:cancel",
        "Cancel a run; workers stop before their next batch.",
    ),
    "import": Entry(
        "orchestrator.cli.import_command:import_",
        "Group statistics and a report over attributions made elsewhere; no model is loaded.",
    ),
    "evaluate": Entry(
        "orchestrator.cli.evaluate_command:evaluate",
        "Measure how faithful explanations are: tables with intervals, curves, paired tests.",
    ),
    "train": Entry(
        "orchestrator.cli.train_commands:train",
        "Fine-tune a classifier in stages; run again after an interruption to go on.",
    ),
    "status": Entry("orchestrator.cli.status_commands:status", "Show how far runs are."),
    "report": Entry(
        "orchestrator.cli.status_commands:report",
        "Write the report of an audit or evaluation again, or print it as JSON.",
    ),
    "matches": Entry(
        "orchestrator.cli.finding_commands:matches",
        "Write random matches in context for a person to check, or tell their precision.",
    ),
    "strategies": Entry(
        "orchestrator.cli.finding_commands:strategies",
        "Cluster a run's explanations class by class; point out what looks like a shortcut.",
    ),
    "compare": Entry(
        "orchestrator.cli.compare_command:compare",
        "Compare two runs over the same data, item by item and entity by entity.",
    ),
    "gate": Entry(
        "orchestrator.cli.release_commands:gate",
        "Check a run against a policy: a line for every rule, exit code 1 where one is not kept.",
    ),
    "export": Entry(
        "orchestrator.cli.release_commands:export",
        "Write a run's attributions, tables or findings for other programs; docs/export.md.",
    ),
    "manifest": Entry(
        "orchestrator.cli.release_commands:manifest",
        "Print what a run was made from and how it went, as canonical JSON.",
    ),
    "verify": Entry(
        "orchestrator.cli.release_commands:verify",
        "Hash every input and stored byte of a run, and explain some items again.",
    ),
    "explain": Entry("orchestrator.cli.explain_command:explain", "Explain one text or picture."),
    "doctor": Entry(
        "orchestrator.cli.doctor_command:doctor",
        "Examine one item: operators and their rules, the ledger, cost, batches, what is missing.",
    ),
    "worker": Entry(
        "orchestrator.cli.operator_commands:worker",
        "Serve the queues; SIGTERM ends it after the batch in hand.",
    ),
    "metrics-server": Entry(
        "orchestrator.cli.operator_commands:metrics_server",
        "Answer Prometheus at /metrics with the fleet's state, until SIGTERM or Ctrl-C.",
    ),
    "sweep": Entry(
        "orchestrator.cli.schedule_commands:sweep",
        "Send messages again for shards that nobody holds, and close runs that are through.",
    ),
    "beat": Entry(
        "orchestrator.cli.schedule_commands:beat",
        "Tick and sweep until SIGTERM (Celery beat); several at once do no harm.",
    ),
    "version": Entry("orchestrator.cli.command_line:version", "Print the version."),
}

#: verbs with verbs of their own: the function makes the group
GROUPS: Mapping[str, Entry] = {
    "schedule": Entry(
        "orchestrator.cli.schedule_commands:schedule_group", "Audits that are made again and again."
    ),
    "db": Entry(
        "orchestrator.cli.operator_commands:database_group",
        "The store: its tables, partitions, old runs and backups.",
    ),
}
