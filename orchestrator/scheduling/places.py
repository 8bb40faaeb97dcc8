"""A specification that means the same from whatever folder it is read."""

from pathlib import Path

from orchestrator.plan import absolute_model
from orchestrator.spec import AuditSpec
from transexplain.bias.lexicon_files import BUILTIN
from transexplain.data import SOURCES


def with_absolute_paths(spec: AuditSpec) -> AuditSpec:
    """The specification with the paths of its model, data and lexicon made absolute."""
    changed = {
        "model": spec.model.model_copy(update={"source": absolute_model(spec.model.source)}),
        "data": spec.data.model_copy(update={"source": _absolute_data(spec.data.source)}),
    }
    if spec.groups is not None:
        lexicons = tuple(map(_absolute_lexicon, spec.groups.lexicons))
        second = _absolute_lexicon(spec.groups.second) if spec.groups.second else None
        places = {"lexicon": lexicons or None, "second": second}
        changed["groups"] = spec.groups.model_copy(update=places)
    return spec.model_copy(update=changed)


def _absolute_lexicon(lexicon: str) -> str:
    own = lexicon.startswith(BUILTIN)
    return lexicon if own else str(Path(lexicon).expanduser().absolute())


def _absolute_data(source: str) -> str:
    prefix, colon, location = source.partition(":")
    if not colon or prefix not in SOURCES:
        return str(Path(source).expanduser().absolute())
    return f"{prefix}:{Path(location).expanduser().absolute()}"
