"""The comparison with Inseq and Captum on a tiny model: the same numbers, counted passes."""

import sys

import numpy as np
import pytest
import tiny_language as tiny

import transexplain as te
from benchmarks import language_peers


def test_captum_gives_this_packages_gradient_and_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "inseq", None)
    monkeypatch.setattr(language_peers, "_version", lambda name: "-" if name == "inseq" else "1")
    model = te.load_language_model(tiny.causal().float(), tiny.byte_pairs())
    texts = iter(["The nurse said that", "she said", "The capital of France is"])
    (case,) = language_peers.cases(model, texts, 1, 2)
    captum, missing = language_peers.peers(model)
    assert missing == ["inseq is not installed: pip install inseq"]
    own = language_peers.own(model)
    rows, (falls,) = language_peers.measured(model, own + captum[:1], [case])
    by = {row.name: row for row in rows}
    gradient = by["captum: gradient x activation"]
    np.testing.assert_allclose(
        gradient.scores[0], by[language_peers.GRADIENT].scores[0], rtol=1e-4, atol=1e-6
    )
    assert gradient.forwards == gradient.sequences == [2]
    assert by[language_peers.LRP].sequences == [1]
    assert len(falls) == len(case.prompt)
    assert len(list(language_peers.table(rows, [falls]))) == len(rows) + 2
