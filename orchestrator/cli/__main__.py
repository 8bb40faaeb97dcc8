"""`python -m orchestrator.cli`: the command line without its script."""

from orchestrator.cli.main import main

main()
