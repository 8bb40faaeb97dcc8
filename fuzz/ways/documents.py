"""Audit and training specifications, policies of gates: YAML that people write.

The first line says which; a line `set a.b=value` is an option `--set`.
"""

import json
from pathlib import Path

from fuzz.guard import promise
from orchestrator.gate.policy import Policy, load_policy
from orchestrator.spec import AuditSpec, load_spec
from transexplain.extras.training.train_command import TrainingSpec, load_training

_FILE = Path("document.yaml")


def target(data: bytes) -> None:
    """What is accepted means the same after it was stored as JSON, as schedules do."""
    kind, _, body = data.partition(b"\n")
    settings: list[str] = []
    while body.startswith(b"set "):
        line, _, body = body.partition(b"\n")
        settings.append(line[4:].decode("utf-8", "replace"))
    _FILE.write_bytes(body)
    found: AuditSpec | TrainingSpec | Policy
    if kind == b"policy":
        found = load_policy(_FILE)
    elif kind == b"training":
        found = load_training(_FILE, settings=settings)
    else:
        found = load_spec(_FILE, settings=settings)
    stored = json.dumps(found.model_dump(mode="json"), allow_nan=False)
    again = json.loads(stored)
    if isinstance(found, AuditSpec):
        # of two ways to explain only one may be written
        del again["method" if found.explain is not None else "explain"]
    promise(type(found).model_validate(again) == found, "stored and read again it is another")
