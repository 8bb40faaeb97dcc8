"""RelevanceMode: sees every torch function of a forward pass and hands it to its rule.

Nothing is patched: the mode lives in one thread and between `with` and its end. Parameters are
detached call by call, so a model's `requires_grad` flags are never touched.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from transexplain.engine.call import Call
from transexplain.engine.composites import Composite
from transexplain.engine.ledger import Entry, LedgerBook
from transexplain.engine.operators import KIND, operator_name
from transexplain.engine.rules import RULES
from transexplain.errors import EngineError


class RelevanceMode(TorchFunctionMode):
    """Apply a composite to everything that is computed from the leaf.

    A *carrier* is a tensor computed from the leaf. `leaf` and `encoder_begins` are called from
    inside the model's forward (they are the taps of `models`).
    """

    def __init__(self, composite: Composite, items: int) -> None:
        super().__init__()
        self.composite = composite
        self.book = LedgerBook(items)
        self.leaf_tensor: Tensor | None = None
        self._in_encoder = False
        self._site = 0

    def leaf(self, tensor: Tensor) -> Tensor:
        """Make `tensor` the leaf that relevance is measured at; returns what replaces it."""
        self.leaf_tensor = tensor.detach().requires_grad_(True)
        return self.leaf_tensor.clone()  # the model may write into it

    def encoder_begins(self) -> None:
        """From here on an added constant is a bias, no longer an embedding."""
        self._in_encoder = True

    def carries(self, value: Any) -> bool:
        """Whether `value` was computed from the leaf."""
        return isinstance(value, Tensor) and value.requires_grad

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        args, kwargs = self._without_foreign(args), self._without_foreign(dict(kwargs or {}))
        if self.leaf_tensor is None:
            return func(*args, **kwargs)
        given = list(_tensors((args, kwargs)))
        carriers = {id(t): t for t in given if t.requires_grad}
        if carriers:
            name = operator_name(func)
            out = self._apply(Call(func, name, args, kwargs, tuple(carriers.values())))
        else:
            out = func(*args, **kwargs)
        if carriers or any(_depends_on_leaf(t) for t in given):
            _mark_dependent(out)
        return out

    def _apply(self, call: Call) -> Any:
        kind = KIND.get(call.name)
        if kind is not None:
            return RULES[kind](self, call)
        out = call.run()
        if any(t.requires_grad for t in _tensors(out)):
            raise self.refusal(call, "no rule knows it")
        return out

    def refusal(self, call: Call, why: str) -> EngineError:
        """The error for a call that no rule covers."""
        shapes = ", ".join(str(tuple(t.shape)) for t in call.carriers)
        return EngineError(
            f"operator {call.name!r} on {shapes} cannot be explained by {self.composite.name!r}: "
            f"{why}. Use a method that needs no propagation through it, or report the model"
        )

    def book_constant(
        self,
        out: Tensor,
        constant: Tensor | float | None,
        kind: str,
        *,
        scale: float = 1.0,
        where: Tensor | None = None,
        window: tuple[int, int, int] | None = None,
    ) -> None:
        """Book the share that a constant summed into `out` takes, in every backward pass.

        `where` (mask) and `window` (dim, start, length) say where in `out` it stands. What was
        computed from the leaf and then detached is no leaf of its own: it is not booked, and
        shows in the gap.
        """
        if constant is None or (isinstance(constant, Tensor) and _depends_on_leaf(constant)):
            return
        if self.carries(constant):
            raise EngineError(f"a {kind} adds what depends on the input where a constant belongs")
        value = torch.as_tensor(constant, dtype=out.dtype, device=out.device).detach() * scale
        if where is not None:
            value = torch.where(where, value, torch.zeros_like(value))
        entry: Entry = "biases"
        if kind in ("sum", "concat") and not self._in_encoder:
            entry = "embeddings"
        site = self._next_site()

        def book(gradient: Tensor) -> None:
            part = gradient if window is None else gradient.narrow(*window)
            self.book.add(entry, kind, site, self._share(part, value))

        out.register_hook(book)  # type: ignore[no-untyped-call]

    def measured(
        self,
        kind: str,
        call: Call,
        *,
        constant: Tensor | None = None,
        at_zero: Tensor | float = 0.0,
    ) -> Tensor:
        """The plain gradient of a non-linear operator, with what it makes or loses booked.

        rules = <y, g> - <constant, g> - sum over carriers <x, g_x>.
        """
        site = self._next_site()
        aliases = {id(carrier): carrier.view_as(carrier) for carrier in call.carriers}
        out: Tensor = call.substituted(aliases).run()
        if isinstance(at_zero, Tensor) or at_zero:
            constant = torch.as_tensor(at_zero, dtype=out.dtype, device=out.device)
        self.book_constant(out, constant, kind)
        # copies, because the model may write into either tensor later
        value = out.detach().clone() if constant is None else out.detach() - constant
        self._book_rule(out, value, kind, site, 1.0)
        for alias in aliases.values():
            self._book_rule(alias, alias.detach().clone(), kind, site, -1.0)
        return out

    def _book_rule(self, at: Tensor, value: Tensor, kind: str, site: int, sign: float) -> None:
        def book(gradient: Tensor) -> None:
            # masked positions hold -inf and have no gradient
            share = torch.where(gradient == 0, 0, gradient * value)
            self.book.add("rules", kind, site, sign * self.book.per_item(share))

        at.register_hook(book)  # type: ignore[no-untyped-call]

    def _share(self, gradient: Tensor, constant: Tensor) -> Tensor:
        if gradient.dtype in (torch.float16, torch.bfloat16):
            gradient, constant = gradient.float(), constant.float()
        if constant.dim() == 1 and gradient.shape[-1] == constant.shape[0]:
            return self.book.dot_last(gradient, constant)
        return self.book.per_item(torch.where(gradient == 0, 0, gradient * constant))

    def _next_site(self) -> int:
        self._site += 1
        return self._site

    def _without_foreign(self, value: Any) -> Any:
        """`value` with every leaf of somebody else's graph (parameters) detached."""
        if isinstance(value, Tensor):
            foreign = value.requires_grad and value.is_leaf and value is not self.leaf_tensor
            return value.detach() if foreign else value
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            return type(value)(self._without_foreign(part) for part in value)
        if isinstance(value, dict):
            return {key: self._without_foreign(part) for key, part in value.items()}
        return value


_MARK = "_transexplain_depends_on_leaf"


def _depends_on_leaf(tensor: Tensor) -> bool:
    return hasattr(tensor, _MARK)


def _mark_dependent(value: Any) -> None:
    """Mark what was computed from the leaf but carries no relevance any more."""
    for tensor in _tensors(value):
        if not tensor.requires_grad:
            setattr(tensor, _MARK, True)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
