"""`python -m orchestrator.cli`: the command line without its script."""

from orchestrator.cli.command_line import main

main()
