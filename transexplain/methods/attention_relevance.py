"""The relevance that Chefer's rules bring to attention maps."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transexplain.engine.propagate import Propagation, propagate
from transexplain.methods.attention_maps import GlobalMaps, check_maps, heads_apart
from transexplain.methods.leaf_forward import as_array
from transexplain.methods.padded import Variant
from transexplain.methods.records import Array
from transexplain.methods.relevance import chefer_rules
from transexplain.models.base import Batch, LoadedModel


@dataclass(frozen=True, slots=True, eq=False)
class RelevanceMaps:
    """A forward pass in relevance form whose backward passes end at the attention maps."""

    passes: Propagation
    logits: Array  #: (B, C)

    @classmethod
    def of(
        cls,
        model: LoadedModel,
        batch: Batch,
        plain: GlobalMaps,
        *,
        variant: Variant,
        baseline: bool,
    ) -> "RelevanceMaps":
        """A forward pass that takes the values of linear layers from the plain one.

        `baseline` is the LRP that the authors compare with.
        """
        input_layer = model.default_at
        rules = chefer_rules("chefer-lrp", input_layer, variant=variant, baseline=baseline)
        passes = propagate(
            lambda taps: model.run(batch, at=input_layer, taps=taps),
            rules,
            len(batch.encoded),
            module=model.module,
            record_attention=True,
            known_values=plain.passed.values,
        )
        check_maps(model, batch, passes.attention)
        return cls(passes, as_array(passes.logits))

    @property
    def layers(self) -> int:
        """L."""
        return len(self.passes.attention)

    def relevance(self, seed: Array, layers: Sequence[int], *, last: bool) -> list[Tensor]:
        """Relevance (B, H, T, T) of the maps of `layers` for seeds (B, C); no deeper than these."""
        maps = [self.passes.attention[layer] for layer in layers]
        found = self.passes.relevance_of(torch.from_numpy(seed), maps, last=last)
        return [heads_apart(arrived, len(self.logits)) for arrived in found]
