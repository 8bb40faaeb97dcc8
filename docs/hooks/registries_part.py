"""Methods, metrics, errors and public names, from the tables that define them."""

import inspect
from collections.abc import Iterator

from markdown_text import code, table

import transexplain
from transexplain import errors
from transexplain.evaluating.metrics import METRICS
from transexplain.evaluating.metrics import metric_facts as facts_of_metric
from transexplain.methods import METHODS, facts_of

_READS = {"yes": "yes", "weakly": "hardly", "no": "no"}
_BETTER = {"higher": "higher is better", "lower": "lower is better", "neither": ""}


def method_facts() -> str:
    """One row for each method."""
    heads = ("method", "source", "unit", "reads the target", "for", "parameters")
    rows = []
    for name in METHODS:
        facts = facts_of(name)
        needs = f"; needs the extra `{facts.needs[1]}`" if facts.needs else ""
        rows.append(
            (
                code(name),
                facts.source + needs,
                code(facts.unit),
                _READS[facts.reads_target],
                ", ".join(facts.modalities),
                _parameters(METHODS.load(name), leave_out=("method",)),
            )
        )
    return table(heads, rows)


def metric_facts() -> str:
    """One row for each metric."""
    heads = ("metric", "title", "source", "unit", "for", "parameters")
    rows = []
    for name in METRICS:
        facts = facts_of_metric(name)
        needs = "; needs rationales" if facts.needs_evidence else ""
        reading = ", ".join(filter(None, (facts.unit, _BETTER[facts.better])))
        parameters = _parameters(METRICS.load(name))
        what = ", ".join(facts.modalities) + needs
        rows.append((code(name), facts.title, facts.source, reading, what, parameters))
    return table(heads, rows)


def _parameters(function: object, leave_out: tuple[str, ...] = ()) -> str:
    """`name=default` of the parameters that a user may give; the name where nothing is given."""
    given = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    own = [one for one in given if one.kind is one.KEYWORD_ONLY and one.name not in leave_out]
    return ", ".join(
        code(one.name if one.default in (one.empty, None, ()) else f"{one.name}={one.default}")
        for one in own
    )


def error_classes() -> str:
    """The exceptions as a tree, with the exit code of each."""
    return table(("error", "exit code", "means"), _errors(errors.TransExplainError, 0))


def _errors(one: type[errors.TransExplainError], depth: int) -> Iterator[tuple[str, int, str]]:
    meaning = (inspect.getdoc(one) or "").partition("\n\n")[0]
    yield "&nbsp;&nbsp;&nbsp;" * depth + code(one.__name__), one.exit_code, meaning
    for inner in one.__subclasses__():
        if inner.__module__ == errors.__name__:
            yield from _errors(inner, depth + 1)


def python_names() -> str:
    """A section for each public name of `transexplain`, functions first."""
    public = {name: getattr(transexplain, name) for name in transexplain.__all__}
    functions = [name for name, value in public.items() if inspect.isfunction(value)]
    modules = [name for name, value in public.items() if inspect.ismodule(value)]
    classes = [name for name, value in public.items() if inspect.isclass(value)]
    parts = [f"## Functions\n\n{_documented(functions)}"]
    for name in modules:
        inner = [f"{name}.{one}" for one in public[name].__all__]
        parts.append(f"## {code(f'transexplain.{name}')}\n\n{_documented(inner)}")
    parts.append(f"## Records and errors\n\n{_documented(classes)}")
    return "\n\n".join(parts)


def _documented(names: list[str]) -> str:
    return "\n\n".join(f"::: transexplain.{name}" for name in names)
