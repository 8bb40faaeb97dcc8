"""The benchmark of matching runs; no timing is asserted."""

import gzip
import sys
from pathlib import Path

import pytest

from benchmarks import matching
from transexplain.analysis.groups.mention_matching import Matcher
from transexplain.types.items import EntityGroup


def test_it_prints_every_contender(tmp_path: Path, monkeypatch, capsys) -> None:
    texts = tmp_path / "texts.tsv.gz"
    texts.write_bytes(gzip.compress("label\ttext\n0\tShe met Ann\u2019s aunt.\n1\tno\n".encode()))
    words = ["--lexicon", "builtin:gender", "--texts", str(texts), "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", ["matching", *words])
    matching.main()
    printed = capsys.readouterr().out
    assert "2 texts, 3 groups," in printed
    for name in ("words alone", "tree over words", "tree, cues for ambiguous terms"):
        assert any(line.startswith(name) for line in printed.splitlines())


def test_the_automaton_finds_what_the_tree_finds() -> None:
    pytest.importorskip("ahocorasick")
    terms = ("Ann", "New York", "York Town", "Guinea", "Guinea-Bissau", "he", "US", "ann")
    groups = [
        EntityGroup(name="a", terms=terms),
        EntityGroup(name="b", terms=terms[1:4]),
    ]
    tree, automaton = Matcher(groups), matching.AutomatonMatcher(groups)
    for text in (
        "Ann's New  York Town, Guinea Bissau: the US, us, HE",
        "",
        "York Town New York ann",
    ):
        mine = [(m.start, m.end, "ab".index(m.group)) for m in tree.find(text)]
        assert mine == automaton.find(text)
