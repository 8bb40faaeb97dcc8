"""A specification that means the same from whatever folder it is read."""

from pathlib import Path

from orchestrator.plan import absolute_model
from orchestrator.spec import AuditSpec
from transexplain.data import SOURCES


def with_absolute_paths(spec: AuditSpec) -> AuditSpec:
    """The specification with the paths of its model, data and lexicon made absolute."""
    changed = {
        "model": spec.model.model_copy(update={"source": absolute_model(spec.model.source)}),
        "data": spec.data.model_copy(update={"source": _absolute_data(spec.data.source)}),
    }
    if spec.groups is not None:
        lexicon = str(Path(spec.groups.lexicon).expanduser().absolute())
        changed["groups"] = spec.groups.model_copy(update={"lexicon": lexicon})
    return spec.model_copy(update=changed)


def _absolute_data(source: str) -> str:
    prefix, colon, location = source.partition(":")
    if not colon or prefix not in SOURCES:
        return str(Path(source).expanduser().absolute())
    return f"{prefix}:{Path(location).expanduser().absolute()}"
