"""The verbs that exist: one entry each; a verb is a function, its parameters are its options."""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """The place of a verb, and the heading under which `--help` lists it."""

    place: str  #: `module:function`, imported on first use
    panel: str

    @property
    def help(self) -> str:
        """The first paragraph of its docstring, read from the source: an import would be slow."""
        module, _, function = self.place.partition(":")
        spec = find_spec(module)
        assert spec is not None and spec.origin is not None
        source = Path(spec.origin).read_text(encoding="utf-8")
        head = re.search(rf'(?ms)^def {function}\(.*?"""(.*?)("""|\n\n)', source)
        assert head is not None, self.place
        return " ".join(head[1].split())


#: heading of `--help` -> verb -> its place
_VERBS = {
    "Start": {
        "demo": "transexplain.extras.demo.demo_run:demo",
        "doctor": "orchestrator.cli.doctor_command:doctor",
        "explain": "orchestrator.cli.explain_command:explain",
        "validate": "orchestrator.cli.run_commands:validate",
        "plan": "orchestrator.cli.run_commands:plan",
    },
    "Audit": {
        "run": "orchestrator.cli.run_commands:run",
        "submit": "orchestrator.cli.run_commands:submit",
        "resume": "orchestrator.cli.run_commands:resume",
        "retry": "orchestrator.cli.run_commands:retry",
        "cancel": "orchestrator.cli.run_commands:cancel",
        "pause": "orchestrator.cli.fleet_commands:pause",
        "unpause": "orchestrator.cli.fleet_commands:unpause",
        "queue": "orchestrator.cli.fleet_commands:queue",
        "import": "orchestrator.cli.run_commands:import_",
        "evaluate": "orchestrator.cli.run_commands:evaluate",
        "train": "transexplain.extras.training.train_command:train",
    },
    "Look": {
        "status": "orchestrator.cli.status_commands:status",
        "report": "orchestrator.cli.status_commands:report",
        "matches": "orchestrator.cli.finding_commands:matches",
        "strategies": "orchestrator.cli.finding_commands:strategies",
        "compare": "orchestrator.cli.finding_commands:compare",
        "gate": "orchestrator.cli.release_commands:gate",
        "export": "orchestrator.cli.release_commands:export",
        "manifest": "orchestrator.cli.release_commands:manifest",
        "verify": "orchestrator.cli.release_commands:verify",
        "serve": "orchestrator.cli.serve_command:serve",
    },
    "Operate": {
        "worker": "orchestrator.cli.operator_commands:worker",
        "metrics-server": "orchestrator.cli.fleet_commands:metrics_server",
        "sweep": "orchestrator.cli.schedule_commands:sweep",
        "beat": "orchestrator.cli.schedule_commands:beat",
    },
}
#: verbs with verbs of their own: the function makes the group
_GROUPS = {
    "Operate": {
        "schedule": "orchestrator.cli.schedule_commands:schedule_group",
        "fleet": "orchestrator.cli.fleet_commands:fleet_group",
    },
    "Store": {"db": "orchestrator.cli.operator_commands:database_group"},
}


def _entries(panels: Mapping[str, Mapping[str, str]]) -> Mapping[str, Entry]:
    return {
        name: Entry(place, panel)
        for panel, places in panels.items()
        for name, place in places.items()
    }


VERBS = _entries(_VERBS)
GROUPS = _entries(_GROUPS)
