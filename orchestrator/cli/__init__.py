"""The command line; every verb imports what it needs when it runs, so `--help` is quick."""

from orchestrator.cli.command_line import app, main

__all__ = ["app", "main"]
