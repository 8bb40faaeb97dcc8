"""RelevanceMode: sees every torch function of a forward pass and hands it to its rule.

Nothing is patched: the mode lives in one thread and between `with` and its end. Parameters are
detached call by call, so a model's `requires_grad` flags are never touched.
"""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transexplain.engine.composites import ChefersRules, Composite, LinearRule
from transexplain.engine.item_axis import follow
from transexplain.engine.ledger import Bookkeeper, LedgerBook
from transexplain.engine.operator_call import Call, LinearValues, RefusalError, module_at_work
from transexplain.engine.operators import KIND, operator_name, weight_place
from transexplain.engine.tensor_record import (
    cast_shadows,
    function_name,
    is_foreign,
    mark_dependent,
    mark_output,
    mark_seen,
    mark_unruled,
    record,
    recorded,
    substitutes,
    tensors_in,
    was_seen,
)
from transexplain.errors import EngineError

#: takes the mode and the call, computes the operator's own value, and arranges its backward
Rule = Callable[["RelevanceMode", Call], Any]


class Watcher(Protocol):
    """Observes every operator of a pass; it may let the pass continue after a refusal."""

    def book(self, items: int) -> LedgerBook:
        """The ledger book of the pass."""

    def watch(self, mode: "RelevanceMode", call: Call) -> Any:
        """Apply the mode's rule to `call`; its value."""

    def refused(self, call: Call, error: Exception) -> None:
        """Record that `call` has no rule."""


class RelevanceMode(TorchFunctionMode):
    """Apply a composite to everything that is computed from the input layer.

    A *carrier* is a tensor computed from the input layer. `input_layer` and `encoder_begins` are
    called from inside the model's forward (they are the taps of `models`). `module` names the
    weights that overrides match.
    """

    def __init__(
        self,
        composite: Composite,
        rules: Mapping[str, Rule],
        items: int,
        *,
        module: nn.Module | None = None,
        census: Watcher | None = None,
    ) -> None:
        super().__init__()
        self.composite = composite
        self.module = module
        self.census = census
        self.items = items
        book = LedgerBook(items) if census is None else census.book(items)
        self.books = Bookkeeper(book, relevance_form=composite.relevance_form)
        self.rules = rules  #: by kind of operator
        self.input_tensor: Tensor | None = None
        self.input_sink: Tensor | None = None
        self.attention: list[Tensor] | None = None  #: filled where it is a list
        self.known_values: LinearValues | None = None  #: of an earlier pass over the same batch
        self.met_overrides: set[str] = set()
        self.met_input_rule = False
        self.inside = False  #: where gradients are off: an autograd function, or cut off
        #: names of the parameters that overrides match, known by where and how large they are
        self._names = {
            (parameter.data_ptr(), tuple(parameter.shape)): name
            for name, parameter in (module.named_parameters() if module else ())
            if composite.overrides
        }
        self._last_softmax: tuple[weakref.ref[Tensor], Tensor] | None = None

    def input_layer(self, tensor: Tensor) -> Tensor:
        """Make `tensor` the input layer that relevance is measured at; returns what replaces it."""
        input_layer = tensor.detach().requires_grad_(True)
        record(input_layer).seen = True
        self.input_tensor = input_layer
        copy = self.input_tensor.clone()  # the model may write into it
        if self.composite.input_rule is not None:
            self.input_sink = torch.zeros_like(self.input_tensor).requires_grad_(True)
            record(copy).sink = self.input_sink
        return copy

    def encoder_begins(self) -> None:
        """From here on an added constant is a bias, no longer an embedding."""
        self.books.in_encoder = True

    def carries(self, value: Any) -> bool:
        """Return whether `value` was computed from the input layer."""
        return isinstance(value, Tensor) and value.requires_grad

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        args, kwargs = self._without_foreign(args), self._without_foreign(kwargs or {})
        # above the input layer nothing carries relevance: the model runs as it is
        if self.input_tensor is None:
            return func(*args, **kwargs)
        # the forward of a model's own autograd function runs so, and blocks under `no_grad`
        if not torch.is_grad_enabled():
            return self._inside_foreign(func, args, kwargs)
        given = list(tensors_in((args, kwargs)))
        carriers = {id(t): t for t in given if t.requires_grad}
        if carriers:
            call = Call(func, operator_name(func), args, kwargs, tuple(carriers.values()))
            out = self._met(call)
        else:
            out = func(*args, **kwargs)
        # what depends on the input must not pass for a constant of the model later
        mark_output(operator_name(func), args, given, out, carried=bool(carriers))
        return out

    def _inside_foreign(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """A call with gradients off: inside an autograd function of the model, or cut off."""
        given = list(tensors_in((args, kwargs)))
        shadows = substitutes(given, inside=True)
        carriers = {id(c): c for c in (shadows.get(id(t), t) for t in given) if c.requires_grad}
        if not carriers:
            return func(*args, **kwargs)
        plain = Call(func, operator_name(func), args, kwargs, tuple(carriers.values()))
        unruled = next((e for t in given if (e := recorded(t).unruled) is not None), None)
        with torch.enable_grad():
            call = plain.substituted(shadows)
            try:
                self.inside = True
                out = self._met(call)
            except RefusalError as error:
                # what the model cuts off needs no rule: it is refused where relevance arrives
                if call.in_place:
                    raise
                out, unruled = call.run(), error.with_traceback(None)
                mark_seen(tensors_in(out))
            finally:
                self.inside = False
            out = cast_shadows(out)
        mark_dependent(out, held=False)
        mark_unruled(out, unruled)
        return out

    def _met(self, call: Call) -> Any:
        foreign = [carrier for carrier in call.carriers if is_foreign(carrier)]
        if foreign:
            for error in (recorded(carrier).unruled for carrier in foreign):
                if error is not None and call.name in KIND:
                    raise error
            shadows = substitutes(foreign, inside=False)
            unseen = [carrier for carrier in foreign if id(carrier) not in shadows]
            # an operator without a rule may read it: it makes indices, masks or sizes
            if unseen and call.name in KIND:
                why = f"it follows the autograd function {function_name(unseen[0])!r}, which the "
                raise self.refusal(call, why + "engine cannot see into")
            swapped = tuple(shadows.get(id(c), c) for c in call.carriers)
            call = replace(call.substituted(shadows), carriers=swapped)
        # scripted and compiled code goes past the mode, so its gradient follows no rule
        if call.name in KIND and not all(map(was_seen, call.carriers)):
            raise self.refusal(call, "what it reads was computed by scripted or compiled code")
        return self.apply(call) if self.census is None else self.census.watch(self, call)

    def apply(self, call: Call) -> Any:
        """One operator by its rule; also for what a rule puts in the place of an operator."""
        # an operator in parts applies others, and books for itself again afterwards
        outer, self.books.call = self.books.call, call
        try:
            kind = KIND.get(call.name)
            rule = self.rules.get(kind) if kind is not None else None
            out = self._unknown(call) if rule is None else rule(self, call)
            # of a single item every element is its own, wherever the axis went
            if self.items > 1:
                follow(call, out, self.items)
            mark_seen(tensors_in(out))
            return out
        finally:
            self.books.call = outer

    def _unknown(self, call: Call) -> Any:
        out = call.run()
        if any(t.requires_grad for t in tensors_in(out)):
            refusal = self.refusal(call, "no rule knows it")
            if self.census is None:
                raise refusal
            self.census.refused(call, refusal)
        return out

    def again(self, function: Callable[..., Any], call: Call) -> Any:
        """Run `function` in the place of a call, with the mode on: it is seen from inside."""
        with self:
            return function(*call.args, **call.kwargs)

    def refusal(self, call: Call, why: str) -> EngineError:
        """The error for a call that no rule covers."""
        return RefusalError(call.name, call.carriers, self.composite.name, why)

    def linear_rule(self, call: Call) -> LinearRule:
        """The composite's rule for a linear operator, or the first override that takes it."""
        if self.composite.overrides:
            weight = call.argument(*(weight_place(call.name) or (1, "weight")), None)
            name = self._names.get((weight.data_ptr(), tuple(weight.shape)))
            # a weight made of other tensors is no parameter, and has no name of its own
            name = module_at_work(self.module) if name is None else name
            for override in self.composite.overrides:
                if override.takes(name):
                    self.met_overrides.add(override.pattern)
                    return override.rule
        return self.composite.linear

    def linear_value(self, call: Call) -> Tensor:
        """What a linear operator gives, its inputs held constant; known from an earlier pass."""
        known = None if self.known_values is None else self.known_values.take(call)
        return call.product() if known is None else known

    @property
    def chefer(self) -> ChefersRules:
        """The options of the relevance form."""
        return self.composite.chefer or ChefersRules()

    def sink_of(self, tensor: Tensor) -> Tensor | None:
        """What takes the input layer's own relevance, where `tensor` is it but for reshapes."""
        sink = recorded(tensor).sink
        self.met_input_rule |= sink is not None
        return sink

    def follow_sink(self, call: Call, out: Any) -> None:
        """Do to the sink what a structural operator did to the input layer."""
        if self.input_sink is None or len(call.carriers) != 1:
            return
        sink = recorded(call.carriers[0]).sink
        if sink is not None:
            sinks = call.substituted({id(call.carriers[0]): sink}).run()
            for tensor, other in zip(tensors_in(out), tensors_in(sinks), strict=True):
                record(tensor).sink = other

    def record_attention(self, weights: Tensor) -> None:
        """Keep an attention map, in the graph."""
        if self.attention is not None and weights.dim() >= 3:
            self.attention.append(weights)

    def note_softmax(self, out: Tensor, below: Tensor) -> None:
        """Remember the latest softmax over classes, in case the model ends in it."""
        # (B, C): attention weights have more axes; weak, so that no graph is kept alive
        if out.dim() == 2:
            self._last_softmax = (weakref.ref(out), below)

    def before_softmax(self, logits: Tensor) -> Tensor | None:
        """The input of the softmax that the model ends in; None where it ends in none."""
        if self._last_softmax is None or self._last_softmax[0]() is not logits:
            return None
        return self._last_softmax[1]

    def _without_foreign(self, value: Any) -> Any:
        """`value` with every start of another graph (parameters) detached."""
        if isinstance(value, Tensor):
            own = value is self.input_tensor or value is self.input_sink
            # without a graph of their own no backward pass computes gradients of parameters
            return value.detach() if value.requires_grad and value.is_leaf and not own else value
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return type(value)(self._without_foreign(part) for part in value)
        if isinstance(value, dict):
            return {key: self._without_foreign(part) for key, part in value.items()}
        return value
