"""The command line, from its own definition."""

from collections.abc import Iterator
from typing import Any

import typer
from markdown_text import code, table

from orchestrator.cli.command_line import app


def command_line() -> str:
    """A list of all verbs, then a section for each with its arguments and options."""
    group: Any = typer.main.get_command(app)
    names = {name: _context(group, name) for name in group.commands}
    parts = [
        f"### {panel}\n\n{_listed(names, group, of)}" if panel else _listed(names, group, of)
        for panel, of in _panels(group).items()
    ]
    for name, context in names.items():
        parts += _sections(f"transexplain {name}", context.command, context)
    return "\n\n".join(parts)


def _context(group: Any, name: str) -> Any:
    """The context of a verb, whose module is imported for it."""
    words = ["-"] if hasattr(group.commands[name], "commands") else []
    return group.commands[name].make_context(name, words, resilient_parsing=True)


def _panels(group: Any) -> dict[str, list[str]]:
    """The groups of the help -> the verbs in them, in the order of the help."""
    panels: dict[str, list[str]] = {}
    for name, command in group.commands.items():
        panel = getattr(command, "rich_help_panel", None)
        panels.setdefault(panel if isinstance(panel, str) else "", []).append(name)
    return panels


def _listed(names: dict[str, Any], group: Any, of: list[str]) -> str:
    rows = [(f"[`{name}`](#transexplain-{name})", _first(group.commands[name].help)) for name in of]
    head = "| verb | what it does |\n| --- | --- |\n"
    return head + "\n".join(f"| {link} | {text} |" for link, text in rows if names)


def _first(text: str | None) -> str:
    """The first paragraph of a help."""
    return " ".join((text or "").partition("\n\n")[0].split()).replace("|", "\\|")


def _sections(title: str, command: Any, context: Any, level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} `{title}` {{ #{title.replace(' ', '-')} }}"
    yield (command.help or "").strip()
    inner = getattr(command, "commands", {})
    for name, one in inner.items():
        yield from _sections(f"{title} {name}", one, context, level + 1)
    if not inner:
        pieces = [word for one in command.params for word in one.get_usage_pieces(context)]
        yield f"```text\n{' '.join([title, *pieces, '[OPTIONS]'])}\n```"
        rows = [_row(one, context) for one in command.params]
        yield table(("argument or option", "value", "what it says"), filter(None, rows))


def _row(parameter: Any, context: Any) -> tuple[str, str, str] | None:
    record = None if getattr(parameter, "hidden", False) else parameter.get_help_record(context)
    if record is None or "--help" in parameter.opts:
        return None
    names, _, value = record[0].partition(" <")
    return code(names), code(value.removesuffix(">")), record[1]
