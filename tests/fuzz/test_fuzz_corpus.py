"""Every seed and every former finding of `fuzz/`, given to its way in once."""

from pathlib import Path

import pytest

from fuzz import corpus
from fuzz.guard import Guard, sandbox
from fuzz.ways import WAYS


@pytest.mark.parametrize("way", sorted(WAYS))
def test_seeds_and_former_findings_pass(way: str, tmp_path: Path) -> None:
    target, files = WAYS[way].target, corpus.seeds(way)
    with sandbox(tmp_path) as inside:
        guard = Guard(target, WAYS[way].limits, inside)
        tried = [(path.name, guard.attempt(path.read_bytes())) for path in files]
    found = [f"{name}: {finding.text}" for name, finding in tried if finding]
    assert tried, "a way in without seeds"
    assert not found, "\n\n".join(found)
