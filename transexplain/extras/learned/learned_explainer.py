"""Relevance predicted by an explainer that learned from a relevance method.

The explainer, a small network, reads hidden states of the forward pass that the prediction needs
anyway, and gives the relevance of every position for every class at once. It approximates its
teacher: there is no ledger, and how near it comes was measured when it was trained and stands on
every attribution.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from transexplain.engine.replay import TensorFunction
from transexplain.errors import ConfigurationError, EngineError
from transexplain.extras.learned.learned_facts import Architecture, Facts, read_facts
from transexplain.files.atomic_write import atomic_file
from transexplain.files.paths import local_path
from transexplain.methods.at_input_layer import as_array, filled, in_bucket, is_double, steps_of
from transexplain.methods.batch_explanation import (
    Array,
    BatchExplanation,
    CommonFields,
    Resolve,
    SeedRelevance,
    explain_targets,
)
from transexplain.methods.explainer_files import digest_of
from transexplain.methods.map_passes import width_of
from transexplain.methods.method_table import explainer_of
from transexplain.models.hidden_states import masks_of, read_states
from transexplain.models.loaded_model import Batch, LoadedModel
from transexplain.models.variants import kept

_WIDEST = 4.0  #: standard deviations that a predicted scale may lie from the mean
_EPSILON = 1e-12  #: of an item whose relevance is zero everywhere


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """The teacher's relevance of a batch."""

    relevance: Tensor  #: (B, T, C) in logits; 0 where it is not known
    known: Tensor  #: (B, C) classes that were explained
    constants: Tensor  #: (B, C) logit minus the sum over positions; NaN where it is not known

    def to(self, device: torch.device) -> "Lesson":
        """The same on another device."""
        parts = (self.relevance, self.known, self.constants)
        return Lesson(*(part.to(device) for part in parts))


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What an explainer predicts for a batch."""

    relevance: Tensor  #: (B, T, C) in logits; 0 at padding
    sizes: Tensor  #: (B, T) scale of the item at each position, in logits; 0 at padding
    log_scale: Tensor  #: (B, 2) standardised, of own and of special positions
    constants: Tensor | None  #: (B, C) standardised logits that are at no position


class Explainer(nn.Module):
    """Predicts what a relevance method would say, from hidden states (B, T, D) of some layers.

    An item has two scales, of its own positions and of special ones (a class token often holds
    many times what a word holds). The buffers hold what it learned from: mean and standard
    deviation of the logs of both, and of the constants of every class, in logits.
    """

    log_mean: Tensor
    log_deviation: Tensor
    constant_mean: Tensor
    constant_deviation: Tensor

    def __init__(self, architecture: Architecture, *, dropout: float = 0.0) -> None:
        """`dropout`: share of what its layers add that is dropped in train mode."""
        super().__init__()
        shape, width = architecture, architecture.width
        self.architecture = architecture
        self.read = nn.ModuleList(nn.Linear(size, width) for size in shape.widths)
        self.read_logits = nn.Linear(shape.classes, width)
        self.layers = nn.ModuleList(_Layer(width, shape.heads, dropout) for _ in range(shape.depth))
        self.norm = nn.LayerNorm(width)
        self.to_relevance = nn.Linear(width, shape.classes)
        self.to_scale = _head(width, 2)
        self.to_constants = _head(width, shape.classes) if shape.conserve else None
        self.register_buffer("log_mean", torch.zeros(2))
        self.register_buffer("log_deviation", torch.ones(2))
        self.register_buffer("constant_mean", torch.zeros(shape.classes))
        self.register_buffer("constant_deviation", torch.ones(shape.classes))

    def forward(
        self,
        states: Sequence[Tensor],
        mask: Tensor,
        own: Tensor,
        logits: Tensor,
        scale: Tensor | None = None,
    ) -> Prediction:
        """The relevance of every position for every class.

        Args:
            states: (B, T, D) for each layer of the architecture.
            mask: (B, T) true where an item has a position.
            own: (B, T) true where that is its own content: no special position, no padding.
            logits: (B, C) of the classifier.
            scale: (B, 2) of the items where it is known, as in training; else it is predicted.
        """
        seen = self._seen(states, mask, logits)
        inside = mask.unsqueeze(-1)
        pooled = (seen * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1)
        log_scale = self.to_scale(pooled)
        if scale is None:
            bounded = log_scale.clamp(-_WIDEST, _WIDEST)
            scale = torch.exp(self.log_mean + self.log_deviation * bounded)
        sizes = torch.where(own, scale[:, :1], scale[:, 1:]) * mask
        relevance = self.to_relevance(seen) * sizes.unsqueeze(-1)
        if self.to_constants is None:
            return Prediction(relevance, sizes, log_scale, None)
        constants = self.to_constants(pooled)
        wanted = logits - (self.constant_mean + self.constant_deviation * constants)
        missing = wanted - relevance.sum(dim=1)
        shares = sizes / sizes.sum(dim=1, keepdim=True).clamp(min=_EPSILON)
        relevance = relevance + missing.unsqueeze(1) * shares.unsqueeze(-1)
        return Prediction(relevance, sizes, log_scale, constants)

    def _seen(self, states: Sequence[Tensor], mask: Tensor, logits: Tensor) -> Tensor:
        """(B, T, width) the input of the explainer at every position."""
        known = self.read_logits(logits).unsqueeze(1)
        for read, state in zip(self.read, states, strict=True):
            known = known + read(F.layer_norm(state, state.shape[-1:]))
        for layer in self.layers:
            known = layer(known, mask)
        hidden: Tensor = self.norm(known)
        return hidden

    @torch.no_grad()
    def calibrate(self, scales: Tensor, constants: Tensor, momentum: float = 1.0) -> None:
        """Move the buffers to scales (N, 2) and constants (N, C) of items to learn from.

        `momentum` is how far: 1 forgets what was. A class whose constants are unknown (NaN)
        for every item keeps what it has.
        """
        logs = torch.log(scales.double().clamp(min=_EPSILON))
        spread = logs.std(dim=0, correction=0).clamp(min=1e-2)
        self.log_mean.lerp_(logs.mean(dim=0).float(), momentum)
        self.log_deviation.lerp_(spread.float(), momentum)
        known = ~constants.isnan()
        count = known.sum(dim=0).clamp(min=1)
        filled = constants.double().nan_to_num()
        mean = filled.sum(dim=0) / count
        spread = ((((filled - mean) * known) ** 2).sum(dim=0) / count).sqrt().clamp(min=1e-2)
        moved = momentum * known.any(dim=0).float()
        self.constant_mean.lerp_(mean.float(), moved)
        self.constant_deviation.lerp_(spread.float(), moved)


def explanation_loss(
    explainer: Explainer, prediction: Prediction, lesson: Lesson, scale: Tensor
) -> Tensor:
    """Mean squared error on the items' own scales (B, 2), given which the prediction was made.

    The sum of the errors of relevance (mean over positions and known classes) and, a tenth as
    heavy, of the scales and the constants in their standard deviations.
    """
    known = lesson.known
    sizes = prediction.sizes.unsqueeze(-1)
    counted = (sizes > 0) & known.unsqueeze(1)
    error = (prediction.relevance - lesson.relevance) / sizes.clamp(min=_EPSILON)
    loss = torch.where(counted, error, 0.0).square().sum() / counted.sum().clamp(min=1)
    logs = (scale.log() - explainer.log_mean) / explainer.log_deviation
    loss = loss + 0.1 * ((prediction.log_scale - logs) ** 2).mean()
    if prediction.constants is not None:
        constants = (lesson.constants - explainer.constant_mean) / explainer.constant_deviation
        off = (prediction.constants - constants.nan_to_num()) ** 2 * known
        loss = loss + 0.1 * off.sum() / known.sum().clamp(min=1)
    return loss


def relevance_error(prediction: Prediction, lesson: Lesson) -> Tensor:
    """Mean squared error in logits squared, over positions and the classes that are known.

    The explanation loss of TransExplain, section 4.1 and Table 2.
    """
    counted = (prediction.sizes > 0).unsqueeze(-1) & lesson.known.unsqueeze(1)
    error = torch.where(counted, prediction.relevance - lesson.relevance, 0.0)
    return error.square().sum() / counted.sum().clamp(min=1)


def item_scale(lesson: Lesson, mask: Tensor, own: Tensor) -> Tensor:
    """(B, 2) root mean squares of relevance over own and over special positions.

    `mask` and `own` (B, T) as in `Explainer.forward`. Neither is less than a thousandth of both
    together; without special positions it is that.
    """
    both = _root_mean_square(lesson, mask).clamp(min=_EPSILON)
    parts = [_root_mean_square(lesson, part) for part in (own, mask & ~own)]
    return torch.maximum(torch.stack(parts, dim=1), both.unsqueeze(1) / 1000)


def _root_mean_square(lesson: Lesson, mask: Tensor) -> Tensor:
    counted = mask.unsqueeze(-1) & lesson.known.unsqueeze(1)
    squares = torch.where(counted, lesson.relevance, 0.0).square().sum(dim=(1, 2))
    return (squares / counted.sum(dim=(1, 2)).clamp(min=1)).sqrt()


def _head(width: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, out))


class _Layer(nn.Module):
    """Pre-norm self-attention and a feed-forward part of twice the width."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_attention, self.norm_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """(B, T, width) -> (B, T, width); positions outside of `mask` (B, T) are not seen."""
        items, positions, width = hidden.shape
        parts = self.qkv(self.norm_attention(hidden)).view(items, positions, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None])
        mixed = self.mix(mixed.transpose(1, 2).reshape(items, positions, width))
        hidden = hidden + F.dropout(mixed, self.dropout, self.training)
        change = self.narrow(F.gelu(self.widen(self.norm_forward(hidden))))
        return hidden + F.dropout(change, self.dropout, self.training)


NAME = "explainer.safetensors"


def save(explainer: Explainer, facts: Facts, path: Path) -> None:
    """Write `path` whole or not at all."""
    weights = {
        name: tensor.detach().float().cpu().contiguous()
        for name, tensor in explainer.state_dict().items()
    }
    with atomic_file(path) as part:
        save_file(weights, part, metadata=facts.to_metadata())


def load(path: str | Path, *, dtype: torch.dtype, device: torch.device) -> tuple[Explainer, Facts]:
    """The explainer at `path` in eval mode; raises ConfigurationError."""
    facts = read_facts(path)
    explainer = Explainer(facts.architecture)
    try:
        with safe_open(local_path(path), framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        explainer.load_state_dict(weights)
    except (SafetensorError, RuntimeError) as error:
        raise ConfigurationError(
            f"the explainer {path} is damaged ({error}); copy it again or train it again"
        ) from None
    return explainer.to(device=device, dtype=dtype).eval().requires_grad_(False), facts


def explain(
    model: LoadedModel,
    batch: Batch,
    resolve: Resolve,
    *,
    method: str,
    explainer: str | None = None,
    sha256: str | None = None,
) -> BatchExplanation:
    """The relevance that an explainer predicts for its teacher: one forward, whatever the targets.

    Args:
        model, batch, resolve, method: of every method; see `batch_explanation`.
        explainer: path of the explainer's file.
        sha256: of the file's bytes, where they shall be these.

    Returns logits (B, C); per item and target, relevance (T,) or (rows, cols) in logits, without
    a ledger. Raises ConfigurationError for a missing or damaged file, other bytes than requested,
    and an explainer of another model.
    """
    network, facts = _explainer_of(model, explainer, sha256)
    logits, predicted = _predicted(model, batch, network)
    mark = CommonFields(method=method, at=facts.at, unit="logits", double=is_double(logits))
    notes = [(_note(facts),)] * len(batch.encoded)

    def take(seed: Array, _last: bool) -> SeedRelevance:
        coefficients = torch.from_numpy(seed).to(predicted.device)
        positions = torch.einsum("btc,bc->bt", predicted.double(), coefficients)
        return SeedRelevance(positions.cpu().numpy(), notes=notes)

    return explain_targets(batch, as_array(logits), resolve, take, mark)


def _predicted(model: LoadedModel, batch: Batch, network: Explainer) -> tuple[Tensor, Tensor]:
    """Logits (B, C) and relevance (B, T, C), replayed where batches of this shape recur."""
    items, layers = len(batch.encoded), network.architecture.layers
    batch, rows = in_bucket(model, batch)
    whole = filled(batch, rows)
    names = list(whole.inputs)

    def function(*tensors: Tensor) -> list[Tensor]:
        *inputs, mask, own, _ = tensors
        given = dataclasses.replace(whole, inputs=dict(zip(names, inputs, strict=True)))
        states = read_states(model, given, layers)
        if states.mask.shape != mask.shape:
            raise EngineError("the layers have other positions than the inputs")
        return [states.logits, network(states.hidden, mask, own, states.logits).relevance]

    # nothing of it waits for a last input
    last = torch.zeros(1, device=whole.lengths.device)
    work = TensorFunction(
        function=function,
        examples=[*whole.inputs.values(), *masks_of(whole, width_of(whole)), last],
        module=model.module,
        at=("learned", network, *names),
    )
    with torch.no_grad(), steps_of(model).begun(work) as begun:
        if begun is None:
            states = read_states(model, batch, layers)
            found = network(states.hidden, states.mask, states.own, states.logits)
            return states.logits, found.relevance
        logits, relevance = begun.end(last)
        # the next replay writes over what this one gave
        return logits[:items].clone(), relevance[:items].clone()


def _explainer_of(
    model: LoadedModel, path: str | None, sha256: str | None
) -> tuple[Explainer, Facts]:
    """The explainer at `path`, read once for a model, after every check that it fits."""
    where = explainer_of({"explainer": path})
    explainer: tuple[Explainer, Facts] = kept(
        model, "explainer", (where, sha256), partial(_read, model, where, sha256)
    )
    return explainer


def _read(model: LoadedModel, where: str, sha256: str | None) -> tuple[Explainer, Facts]:
    facts = read_facts(where)
    facts.refuse(digest=model.ref.digest, source=model.ref.source, where=where)
    if sha256 is not None and digest_of(where) != sha256:
        raise ConfigurationError(
            f"the explainer {where} is not the one that was requested: its bytes have another "
            f"sha256 than {sha256[:12]}; put that file back, or plan the audit again"
        )
    first = next(model.module.parameters())
    return load(where, dtype=first.dtype, device=first.device)


def _note(facts: Facts) -> str:
    agreement = facts.agreement
    measured = (
        f": rank correlation {agreement.rank_correlation:.2f} over {agreement.items} items held out"
        if agreement
        else ", how well was not measured"
    )
    return f"learned, approximates {facts.teacher.name}{measured}"
