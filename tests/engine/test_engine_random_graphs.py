"""Random graphs of operators: the ledger closes, items are independent, all is finite."""

import pytest
import torch
from everyday import only
from hypothesis import example, given, settings
from random_graphs import JOINS, STEPS, Graph, graphs
from toy_networks import close, inputs, one_hot, run

from transexplain.engine.composites import COMPOSITES

TOLERANCE = 1e-11
EVERY_STEP = Graph(tuple((step, "residual", 7) for step in sorted(STEPS)))
EVERY_JOIN = Graph(tuple(("dense", join, 11) for join in sorted(JOINS)))
BOUNDED = settings(derandomize=True, database=None)


def given_inputs(graph: Graph, *, items: int) -> torch.Tensor:
    return inputs(items, 4, 6, seed=len(graph.parts))


@pytest.mark.parametrize("name", only("lrp", "chefer-lrp", of=COMPOSITES))
@example(EVERY_STEP)
@example(EVERY_JOIN)
@given(graphs())
@BOUNDED
def test_the_ledger_closes(name: str, graph: Graph) -> None:
    x = given_inputs(graph, items=3)
    passes = run(graph, x, name)
    torch.testing.assert_close(passes.logits.detach(), graph(x), rtol=1e-10, atol=1e-12)
    seed = one_hot(passes.logits, 1)
    relevance = passes.relevance(seed)
    assert relevance.isfinite().all()
    for ledger in close(passes, relevance, seed):
        assert ledger.relative_gap < TOLERANCE


@example(EVERY_STEP)
@given(graphs())
@BOUNDED
def test_lrp_makes_and_loses_nothing(graph: Graph) -> None:
    """The default is linear once its coefficients are held: no rule has anything to declare."""
    passes = run(graph, given_inputs(graph, items=2), "lrp")
    seed = one_hot(passes.logits, 0)
    for ledger in close(passes, passes.relevance(seed), seed):
        assert not ledger.rules_by_kind


@pytest.mark.parametrize("name", only("lrp", "chefer-lrp", of=COMPOSITES))
@example(EVERY_STEP)
@given(graphs(most=4))
@BOUNDED
def test_items_keep_to_themselves(name: str, graph: Graph) -> None:
    x = given_inputs(graph, items=3)
    passes = run(graph, x, name)
    seed = inputs(3, 3, seed=21)
    together = passes.relevance(seed)
    ledgers = close(passes, together, seed)
    for index, ledger in enumerate(ledgers):
        single = run(graph, x[index : index + 1], name)
        alone = single.relevance(seed[index : index + 1])
        (own,) = close(single, alone, seed[index : index + 1])
        # what nearly cancels amplifies the rounding of differently blocked matrix products
        atol = 1e-9 * own.magnitude
        torch.testing.assert_close(together[index], alone[0], rtol=1e-6, atol=atol)
        for entry in ("embeddings", "biases", "rules"):
            assert getattr(ledger, entry) == pytest.approx(
                getattr(own, entry), rel=1e-6, abs=1e-9 * own.magnitude
            )
