"""Random graphs of operators: the ledger closes, items are independent, all is finite."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from everyday import only
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from toy_networks import close, inputs, one_hot, run

from transexplain.engine.composites import COMPOSITES

Step = Callable[[Tensor, int], Tensor]


LENGTH, WIDTH = 4, 6


def weight(seed: int, *shape: int) -> Tensor:
    """Numbers of a size that keeps activations near 1."""
    return 0.5 * inputs(*shape, seed=seed)


def dense(x: Tensor, seed: int) -> Tensor:
    return F.linear(x, weight(seed, WIDTH, x.shape[-1]), weight(seed + 1, WIDTH))


def rows(x: Tensor, seed: int) -> Tensor:
    flat = torch.addmm(weight(seed, WIDTH), x.reshape(-1, WIDTH), weight(seed + 1, WIDTH, WIDTH))
    return flat.view(x.shape)


def convolved(x: Tensor, seed: int) -> Tensor:
    kernel = weight(seed, WIDTH, WIDTH, 3)
    return F.conv1d(x.transpose(1, 2), kernel, weight(seed + 1, WIDTH), padding=1).transpose(1, 2)


def depthwise(x: Tensor, seed: int) -> Tensor:
    kernel = weight(seed, LENGTH, 1, 3)
    return F.conv1d(x, kernel, weight(seed + 1, LENGTH), padding="same", groups=LENGTH)


def roles(x: Tensor, seed: int) -> tuple[Tensor, ...]:
    projected = F.linear(x, weight(seed, 3 * WIDTH, WIDTH), weight(seed + 1, 3 * WIDTH))
    return projected.view(*x.shape[:2], 3, 2, WIDTH // 2).permute(2, 0, 3, 1, 4).unbind(0)


def fused(x: Tensor, seed: int) -> Tensor:
    out = F.scaled_dot_product_attention(*roles(x, seed), is_causal=seed % 2 == 0)
    return out.transpose(1, 2).flatten(2)


def eager(x: Tensor, seed: int) -> Tensor:
    q, k, v = roles(x, seed)
    scores = q @ k.transpose(-1, -2) / (WIDTH // 2) ** 0.5 + weight(seed + 2, LENGTH, LENGTH)
    return (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(x.shape)


def sequence_first(x: Tensor, seed: int) -> Tensor:
    """Attention on (T, B, D) with heads folded into the batch."""
    items, half = x.shape[0], WIDTH // 2
    moved = F.linear(x.transpose(0, 1), weight(seed, 3 * WIDTH, WIDTH))
    q, k, v = (part.reshape(LENGTH, items * 2, half).transpose(0, 1) for part in moved.chunk(3, -1))
    out = torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1), v)
    joined = out.transpose(0, 1).reshape(LENGTH, items, WIDTH) + weight(seed + 1, WIDTH)
    return joined.transpose(0, 1)


def prefixed(x: Tensor, seed: int) -> Tensor:
    token = weight(seed, 1, 1, WIDTH).expand(len(x), -1, -1)
    return torch.cat([token, x], dim=1)[:, :LENGTH]


def windows(x: Tensor, seed: int) -> Tensor:
    cut = x.view(len(x), 2, 2, WIDTH).reshape(-1, 2, WIDTH)
    return (cut + weight(seed, 2, WIDTH)).roll(1, 1).view(x.shape)


def written_norm(x: Tensor, seed: int) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 0.1)
    return centred * scale * weight(seed, WIDTH) + weight(seed + 1, WIDTH)


def gated(x: Tensor, seed: int) -> Tensor:
    return torch.sigmoid(dense(x, seed)) * x


def swiglu(x: Tensor, seed: int) -> Tensor:
    return F.silu(dense(x, seed)) * dense(x, seed + 5)


def excited(x: Tensor, seed: int) -> Tensor:
    return x * torch.sigmoid(dense(x.mean(1, keepdim=True), seed))


def pooled(x: Tensor, seed: int) -> Tensor:
    smooth = F.avg_pool1d(x.transpose(1, 2), 3, 1, 1).transpose(1, 2)
    return smooth + F.max_pool1d(x, 3, 1, 1) * weight(seed, 1)


def einsummed(x: Tensor, seed: int) -> Tensor:
    return torch.einsum("btd,ts->sbd", x, weight(seed, LENGTH, LENGTH)).permute(1, 0, 2)


STEPS: dict[str, Step] = {
    "dense": dense,
    "rows": rows,
    "convolved": convolved,
    "depthwise": depthwise,
    "fused": fused,
    "eager": eager,
    "sequence_first": sequence_first,
    "prefixed": prefixed,
    "windows": windows,
    "written_norm": written_norm,
    "gated": gated,
    "swiglu": swiglu,
    "excited": excited,
    "pooled": pooled,
    "einsummed": einsummed,
    "layer_norm": lambda x, s: F.layer_norm(x, (6,), weight(s, 6), weight(s + 1, 6), 0.1),
    "rms_norm": lambda x, s: F.rms_norm(x, (6,), weight(s, 6), 0.1),
    "group_norm": lambda x, s: F.group_norm(x, 2, weight(s, 4), weight(s + 1, 4), 0.1),
    "batch_norm": lambda x, s: F.batch_norm(x, weight(s, 4), weight(s + 1, 4).square()),
    "gelu": lambda x, s: F.gelu(x),
    "sigmoid": lambda x, s: torch.sigmoid(x + weight(s, 6)),
    "hardswish": lambda x, s: F.hardswish(x),
    "softplus": lambda x, s: F.softplus(x) - 0.5,
    "written_gelu": lambda x, s: 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.04 * x**3))),
    "scaled": lambda x, s: x.clone().mul_(weight(s, 6)).add_(0.1),
    "normalised": lambda x, s: F.normalize(x, dim=-1, eps=1e-3),
    "padded": lambda x, s: F.pad(x, (1, 0))[..., :6] * 1.5,
    "fourier": lambda x, s: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real / 5.0,
}


JOINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "alone": lambda x, branch: branch,
    "residual": lambda x, branch: x + branch,
    "scaled residual": lambda x, branch: x + 0.3 * branch,
    "difference": lambda x, branch: branch - x,
    "product": lambda x, branch: x * branch,
    "halves": lambda x, branch: torch.cat([x[..., :3], branch[..., 3:]], dim=-1),
    "stacked": lambda x, branch: torch.stack([x, branch], dim=0).mean(0),
}


@dataclass(frozen=True)
class Graph:
    """Operators one after the other, each joined with what goes around it; logits (B, 3)."""

    parts: tuple[tuple[str, str, int], ...]  #: step, join, seed

    def __call__(self, x: Tensor) -> Tensor:
        for step, join, seed in self.parts:
            x = JOINS[join](x, STEPS[step](x, seed))
        return F.linear(x.mean(1), weight(99, 3, WIDTH), weight(98, 3))


def graphs(most: int = 8) -> st.SearchStrategy[Graph]:
    """Graphs of one to `most` operators."""
    part = st.tuples(
        st.sampled_from(sorted(STEPS)), st.sampled_from(sorted(JOINS)), st.integers(0, 50)
    )
    return st.lists(part, min_size=1, max_size=most).map(lambda parts: Graph(tuple(parts)))


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
