"""What is measured: the forward pass, plain gradients, the engine's methods, and Captum's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transexplain.engine.composites import COMPOSITES, composite
from transexplain.engine.propagate import propagate
from transexplain.models.loaded_model import Batch, LoadedModel

FORWARD, PLAIN = "forward", "input x gradient"
#: the aims of the engine, in forward passes
AIMS: Mapping[str, float] = {"lrp": 1.9, "attnlrp": 2.4, "lrp-gamma": 4.0, "chefer-lrp": 6.0}
FURTHER_CLASS_AIM = 0.9
METHODS = tuple(AIMS)
COUNTS = (1, 5, 10)  #: classes explained from one forward pass
CAPTUM_GRADIENT, CAPTUM_INTEGRATED = "captum input x gradient", "captum integrated gradients"
AUTOLRP = "autolrp, CP-LRP"
STEPS = 50

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Contender:
    """One thing to time; `run` is None where it cannot be, and `why` says so."""

    name: str
    run: Run | None
    why: str = ""
    seldom: bool = False  #: minutes per run: fewer rounds


class _Leaf:
    """Taps that only keep the leaf: plain autograd on the unmodified model."""

    def __init__(self) -> None:
        self.tensor: Tensor | None = None

    def input_layer(self, tensor: Tensor) -> Tensor:
        self.tensor = tensor.detach().requires_grad_(True)
        return self.tensor

    def encoder_begins(self) -> None:
        """Nothing to note."""


def forward(model: LoadedModel, batch: Batch) -> Tensor:
    """Logits (B, C) of the untouched model, without a graph."""
    with torch.no_grad():
        return model.caller(model.module, batch.inputs)


def plain(model: LoadedModel, batch: Batch) -> Tensor:
    """Input x gradient (B, T) by autograd at the engine's leaf; no gradient of parameters."""
    taps = _Leaf()
    with torch.enable_grad():
        logits = model.run(batch, at=model.default_at, taps=taps)
    if taps.tensor is None:
        raise RuntimeError("the leaf was not reached")
    (gradient,) = torch.autograd.grad(logits.max(dim=1).values.sum(), taps.tensor)
    return (taps.tensor.detach() * gradient).sum(dim=-1)


def explain(model: LoadedModel, batch: Batch, method: str, classes: int = 1) -> list[Tensor]:
    """Relevance (B, T) by `method` for the predicted class, or for the first `classes` ones."""
    items = len(batch.encoded)
    passes = propagate(
        lambda taps: model.run(batch, at=model.default_at, taps=taps), composite(method), items
    )
    logits = passes.logits.detach()
    found = []
    for turn in range(classes):
        target = logits.argmax(dim=1) if classes == 1 else torch.full_like(logits[:, 0], turn)
        seed = torch.nn.functional.one_hot(target.long(), logits.shape[1])
        relevance = passes.relevance(seed, last=turn == classes - 1).sum(dim=-1)
        shares = relevance.cpu().numpy()
        requested = (seed * logits).sum(dim=1).tolist()
        passes.book.close(shares, 0 * shares, requested)
        found.append(relevance)
    return found


def many(method: str, classes: int) -> str:
    """The contender's name for `classes` classes from one forward pass."""
    return f"{method}, {classes} classes" if classes > 1 else method


def contenders(
    model: LoadedModel, batch: Batch, *, several: tuple[str, ...] = ("lrp",), captum: bool = True
) -> list[Contender]:
    """Everything that is timed on one batch; `several` are the methods of many classes."""
    found = [
        Contender(FORWARD, lambda: forward(model, batch)),
        Contender(PLAIN, lambda: plain(model, batch)),
    ]
    for method in METHODS:
        for count in COUNTS if method in several else COUNTS[:1]:
            found.append(_method(model, batch, method, count))
    return found + (_captum(model, batch) if captum else []) + [_autolrp(model, batch)]


def _method(model: LoadedModel, batch: Batch, method: str, count: int) -> Contender:
    if method not in COMPOSITES:
        return Contender(many(method, count), None, "not available: no such composite")
    if count > len(model.classes):
        return Contender(many(method, count), None, f"the head has {len(model.classes)} classes")
    return Contender(many(method, count), lambda: explain(model, batch, method, count))


def _captum(model: LoadedModel, batch: Batch) -> list[Contender]:
    try:
        from captum.attr import InputXGradient, IntegratedGradients
    except ImportError as error:
        why = f"captum cannot be imported: {error}"
        return [Contender(name, None, why) for name in (CAPTUM_GRADIENT, CAPTUM_INTEGRATED)]
    function, inputs, further = _from_embeddings(model, batch)
    target = forward(model, batch).argmax(dim=1)
    requested: dict[str, Any] = {"target": target, "additional_forward_args": further}

    def gradient() -> object:
        return InputXGradient(function).attribute(inputs, **requested)

    def integrated() -> object:
        bounded = {"n_steps": STEPS, "internal_batch_size": len(batch.encoded)}
        return IntegratedGradients(function).attribute(inputs, **bounded, **requested)

    return [
        Contender(CAPTUM_GRADIENT, gradient),
        Contender(CAPTUM_INTEGRATED, integrated, seldom=True),
    ]


def _autolrp(model: LoadedModel, batch: Batch) -> Contender:
    """LRP on autograd's graph with constant attention weights, as `lrp` has them."""
    try:
        import autolrp
    except Exception as error:  # noqa: BLE001 - it checks torch when it is imported, and may refuse
        return Contender(AUTOLRP, None, f"autolrp cannot be imported: {error}")
    function, inputs, further = _from_embeddings(model, batch)
    target = forward(model, batch).argmax(dim=1)
    rules = autolrp.LRPConfig(rule={**autolrp.BASE, **autolrp.CPLRP})

    def relevance() -> Tensor:
        wrapped = autolrp.tensor(inputs)
        logits = function(wrapped, *further)
        chosen = torch.nn.functional.one_hot(target, logits.shape[1]).to(logits.dtype)
        (logits * chosen).sum().lrp(config=rules)
        found: Tensor = wrapped.relevance.sum(dim=-1)
        return found

    return Contender(AUTOLRP, relevance)


def _from_embeddings(
    model: LoadedModel, batch: Batch
) -> tuple[Callable[..., Tensor], Tensor, tuple[Tensor, ...]]:
    """The model as Captum calls it: function, inputs (B, ...) and further arguments."""
    module: Any = model.module
    if model.modality == "image":
        pixels = batch.inputs["pixel_values"].detach().clone().requires_grad_(True)
        return lambda x: model.caller(module, {"pixel_values": x}), pixels, ()
    with torch.no_grad():
        embedded = module.get_input_embeddings()(batch.inputs["input_ids"])
    mask = batch.inputs["attention_mask"]

    def function(embeddings: Tensor, attention_mask: Tensor) -> Tensor:
        logits: Tensor = module(inputs_embeds=embeddings, attention_mask=attention_mask).logits
        return logits

    return function, embedded.requires_grad_(True), (mask,)
