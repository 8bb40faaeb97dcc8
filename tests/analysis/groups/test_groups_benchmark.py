"""The benchmark of matching runs; no timing is asserted."""

import gzip
import sys
from pathlib import Path

from benchmarks import matching


def test_it_prints_every_contender(tmp_path: Path, monkeypatch, capsys) -> None:
    texts = tmp_path / "texts.tsv.gz"
    texts.write_bytes(gzip.compress("label\ttext\n0\tShe met Ann\u2019s aunt.\n1\tno\n".encode()))
    words = ["--lexicon", "builtin:gender", "--texts", str(texts), "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", ["matching", *words])
    matching.main()
    printed = capsys.readouterr().out
    assert "texts, 3 groups" in printed
    for name in ("words alone", "tree over words", "tree, cues for ambiguous terms"):
        assert any(line.startswith(name) for line in printed.splitlines())
