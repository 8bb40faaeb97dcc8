"""The verbs that exist: one entry each; a verb is a function, its parameters are its options."""

from collections.abc import Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """The place of a verb, its summary, and the heading under which `--help` lists it."""

    place: str  #: `module:function`, imported on first use
    help: str  #: the first paragraph of its docstring
    panel: str = "More"


#: verb -> its place and summary
_START = {
    "demo": (
        "transexplain.extras.demo.demo_run:demo",
        "Train a small text and a small image model here, audit both, and write their reports.",
    ),
    "doctor": (
        "orchestrator.cli.doctor_command:doctor",
        "Examine one item: operators and their rules, the ledger, cost, batches, what is missing.",
    ),
    "explain": (
        "orchestrator.cli.explain_command:explain",
        "Explain one text, picture, graph or pair, or what a language model goes on with.",
    ),
    "validate": (
        "orchestrator.cli.run_commands:validate",
        "Check an audit without running it: every row, labels, mentions, one item explained.",
    ),
    "plan": (
        "orchestrator.cli.run_commands:plan",
        "Check an audit and estimate its passes, time and storage.",
    ),
}
_AUDIT = {
    "run": (
        "orchestrator.cli.run_commands:run",
        "Run an audit here, or by workers of a cluster, and write its report.",
    ),
    "submit": (
        "orchestrator.cli.run_commands:submit",
        "Put an audit on the queue for workers.",
    ),
    "resume": (
        "orchestrator.cli.run_commands:resume",
        "Continue a run: finished shards stay, others go on, dead and damaged ones are done again.",
    ),
    "retry": (
        "orchestrator.cli.run_commands:retry",
        "Try dead shards again and, with --failed, shards with failed items.",
    ),
    "cancel": (
        "orchestrator.cli.run_commands:cancel",
        "Cancel a run; workers stop before their next batch.",
    ),
    "pause": (
        "orchestrator.cli.fleet_commands:pause",
        "Hand out no more shards of a run; those in hand are finished.",
    ),
    "unpause": (
        "orchestrator.cli.fleet_commands:unpause",
        "Hand out shards of a paused run again.",
    ),
    "queue": (
        "orchestrator.cli.fleet_commands:queue",
        "Change or show the priority, the share and the cap of a run that works.",
    ),
    "import": (
        "orchestrator.cli.run_commands:import_",
        "Group statistics and a report over attributions made elsewhere; no model is loaded.",
    ),
    "evaluate": (
        "orchestrator.cli.run_commands:evaluate",
        "Measure how faithful explanations are: tables with intervals, curves, paired tests.",
    ),
    "train": (
        "transexplain.extras.training.train_command:train",
        "Fine-tune a classifier in stages; run again after an interruption to go on.",
    ),
}
_LOOK = {
    "status": (
        "orchestrator.cli.status_commands:status",
        "Show the progress of runs.",
    ),
    "report": (
        "orchestrator.cli.status_commands:report",
        "Write the report of an audit or evaluation again, or print it as JSON.",
    ),
    "matches": (
        "orchestrator.cli.finding_commands:matches",
        "Write random matches in context for a person to check, or report their precision.",
    ),
    "strategies": (
        "orchestrator.cli.finding_commands:strategies",
        "Cluster a run's explanations class by class; point out what looks like a shortcut.",
    ),
    "compare": (
        "orchestrator.cli.finding_commands:compare",
        "Compare two runs over the same data, item by item and entity by entity.",
    ),
    "gate": (
        "orchestrator.cli.release_commands:gate",
        "Check a run against a policy: a line for every rule, exit code 1 where one is broken.",
    ),
    "export": (
        "orchestrator.cli.release_commands:export",
        "Write a run's attributions, tables or findings for other programs; docs/how-to/export.md.",
    ),
    "manifest": (
        "orchestrator.cli.release_commands:manifest",
        "Print what a run was made from and how it went, as canonical JSON.",
    ),
    "verify": (
        "orchestrator.cli.release_commands:verify",
        "Hash every input and stored byte of a run, and explain some items again.",
    ),
    "serve": (
        "orchestrator.cli.serve_command:serve",
        "Show runs, groups, items and the fleet in a browser until SIGTERM or Ctrl-C.",
    ),
}
_OPERATE = {
    "worker": (
        "orchestrator.cli.operator_commands:worker",
        "Serve the queues; SIGTERM ends it after the current batch.",
    ),
    "metrics-server": (
        "orchestrator.cli.fleet_commands:metrics_server",
        "Answer Prometheus at /metrics with the fleet's state, until SIGTERM or Ctrl-C.",
    ),
    "sweep": (
        "orchestrator.cli.schedule_commands:sweep",
        "Send messages again for shards that no worker holds, and close finished runs.",
    ),
    "beat": (
        "orchestrator.cli.schedule_commands:beat",
        "Tick and sweep until SIGTERM (Celery beat); several at once do no harm.",
    ),
}
#: heading of `--help` -> verbs
_PANELS = {"Start": _START, "Audit": _AUDIT, "Look": _LOOK, "Operate": _OPERATE}
VERBS: Mapping[str, Entry] = {
    name: Entry(*entry, panel) for panel, verbs in _PANELS.items() for name, entry in verbs.items()
}

#: verbs with verbs of their own: the function makes the group
GROUPS: Mapping[str, Entry] = {
    "schedule": Entry(
        "orchestrator.cli.schedule_commands:schedule_group",
        "Audits that repeat on a schedule.",
        "Operate",
    ),
    "fleet": Entry(
        "orchestrator.cli.fleet_commands:fleet_group",
        "How many shards need a worker, and how many workers finish by a time.",
        "Operate",
    ),
    "db": Entry(
        "orchestrator.cli.operator_commands:database_group",
        "The store: its tables, partitions, old runs, backups and readers.",
        "Store",
    ),
}
