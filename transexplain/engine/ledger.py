"""The ledger: where all relevance of an explained logit went, by operator."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transexplain.engine.item_axis import follow, per_item
from transexplain.engine.operator_call import Call
from transexplain.engine.tensor_record import FIRST, ItemAxis, recorded
from transexplain.errors import EngineError
from transexplain.types.items import Ledger

Entry = Literal["embeddings", "biases", "rules"]


class LedgerBook:
    """Collects the constants and the losses of one backward pass, per item and per operator."""

    def __init__(self, items: int) -> None:
        self.items = items
        self.kept = True  #: whether bookings of the current pass are wanted
        #: what the latest pass booked (B,) in logits, by entry, kind and number of the operator
        self.sites: dict[tuple[Entry, str, int], Tensor] = {}
        self.amplified_most: Tensor | None = None  #: (B,) as `amplification`, where it was computed

    def start(self, *, keep: bool = True) -> None:
        """Forget the pass before: every backward pass has a ledger of its own, or none."""
        self.sites.clear()
        self.kept = keep

    def add(self, entry: Entry, kind: str, site: int, values: Tensor) -> None:
        """Book `values` (B,) in logits at operator number `site`."""
        key = (entry, kind, site)
        old = self.sites.get(key)
        self.sites[key] = values if old is None else old + values

    def amplified_by(self, largest: Tensor) -> None:
        """Keep the largest factor (B,) of every item, by which a rule amplified relevance."""
        old = self.amplified_most
        self.amplified_most = largest if old is None else torch.maximum(old, largest.to(old))

    @property
    def amplification(self) -> NDArray[np.float64] | None:
        """(B,) the largest factor by which a rule amplified relevance; None: no rule can."""
        return None if self.amplified_most is None else self.amplified_most.cpu().numpy()

    def close(
        self,
        inputs: NDArray[np.float64],
        special: NDArray[np.float64],
        logits: Sequence[float] | NDArray[np.float64],
    ) -> list[Ledger]:
        """One ledger per item.

        Args:
            inputs: (B, T) relevance of the non-special positions, 0 elsewhere.
            special: (B, T') relevance of the special positions, 0 elsewhere.
            logits: (B,) what was propagated.
        """
        values = list(self.sites.values())
        # layers of a model may lie on several devices
        booked = [value.to(values[0].device) for value in values]
        terms = torch.stack(booked).cpu().numpy() if booked else np.zeros((0, self.items))
        explained = np.asarray(logits, dtype=np.float64)
        sums: dict[str, dict[str, NDArray[np.float64]]] = {
            "embeddings": {},
            "biases": {},
            "rules": {},
        }
        for (entry, kind, _), term in zip(self.sites, terms, strict=True):
            sums[entry][kind] = sums[entry].get(kind, 0.0) + np.asarray(term, dtype=np.float64)
        none = np.zeros(len(explained))
        entries = {"inputs": inputs.sum(axis=1), "special": special.sum(axis=1)}
        for name, by_kind in sums.items():
            entries[name] = functools.reduce(np.add, by_kind.values(), none)
        total = functools.reduce(np.add, entries.values(), none)
        sizes = [
            np.abs(part).sum(axis=1) for part in (inputs, special, np.ascontiguousarray(terms.T))
        ]
        columns = {
            **entries,
            "total": total,
            "gap": explained - total,
            "magnitude": functools.reduce(np.add, sizes, none),
        }
        rows = _rows(columns, len(explained))
        of_kinds = [_rows(sums[name], len(explained)) for name in ("biases", "rules")]
        return [
            Ledger(**row, biases_by_kind=biases, rules_by_kind=rules)
            for row, biases, rules in zip(rows, *of_kinds, strict=True)
        ]


def _rows(columns: Mapping[str, NDArray[np.float64]], items: int) -> list[dict[str, float]]:
    """Of each item its number in every column."""
    lists = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)] or [
        {} for _ in range(items)
    ]


_HALF = (torch.float16, torch.bfloat16)


class Bookkeeper:
    """Books for the operators of one forward pass, in every backward pass through it."""

    def __init__(self, book: LedgerBook, *, relevance_form: bool) -> None:
        self.book = book
        self.items = book.items
        self.relevance_form = relevance_form
        self.in_encoder = False  #: from here on an added constant is a bias, no longer an embedding
        self.call: Call | None = None  #: the operator that is being applied
        self.site = 0

    def axis_after(self, out: Tensor) -> ItemAxis | None:
        """The item axis of what the current operator gave."""
        if self.items == 1 or self.call is None:
            return FIRST
        if not recorded(out).placed:
            follow(self.call, out, self.items)
        return recorded(out).axis

    def axis_of(self, carrier: Tensor) -> ItemAxis | None:
        """The item axis of a carrier."""
        return FIRST if self.items == 1 else recorded(carrier).axis

    def at(self, kind: str, axis: ItemAxis | None) -> "Booking":
        """Bookings of one operator whose tensors have their items on `axis`."""
        return Booking(self, kind, self.next_site(), axis)

    def constant(
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

        `where` (mask) and `window` (dim, start, length) say where in `out` it stands. What a rule
        holds constant (attention weights) is lost by a rule; what the model itself computed from
        the input layer and then detached is no constant: it is not booked, and shows in the gap.
        """
        if constant is None:
            return
        dependent = False
        if isinstance(constant, Tensor):
            dependent = recorded(constant).dependent
            if dependent and not recorded(constant).held:
                return
            if constant.requires_grad:
                raise EngineError(f"a {kind} adds what depends on the input, not a constant")
        value = torch.as_tensor(constant, dtype=out.dtype, device=out.device).detach() * scale
        if where is not None:
            value = torch.where(where, value, torch.zeros_like(value))
        # positions, types and class tokens; the layers and norms there have biases
        early = kind in ("sum", "concat", "fill") and not self.in_encoder
        entry: Entry = "rules" if dependent else "embeddings" if early else "biases"
        site, axis = self.next_site(), self.axis_after(out)

        def book(gradient: Tensor) -> None:
            if not self.book.kept:
                return
            part = gradient if window is None else gradient.narrow(*window)
            if self.relevance_form:  # a constant alone takes all relevance that arrives
                share = self._sum(part if where is None else torch.where(where, part, 0), axis)
            else:
                share = self._share(part, value, axis)
            self.book.add(entry, kind, site, share)

        when_arrives(out, book)

    def lost_sink(self, sink: Tensor | None, where: Tensor) -> None:
        """Book what a rule for the input layer gives to padding, which is no part of it."""
        if sink is not None:
            to = self.at("input", self.axis_after(sink))
            when_arrives(sink, lambda relevance: to.rule(torch.where(where, relevance, 0)))

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
        site = self.next_site()
        aliases = {id(carrier): carrier.view_as(carrier) for carrier in call.carriers}
        out: Tensor = call.out_of_place().substituted(aliases).run()
        if out._is_view():  # a separate tensor, which a model could write into without a hook
            out = out.clone()
        if isinstance(at_zero, Tensor) or at_zero:
            constant = torch.as_tensor(at_zero, dtype=out.dtype, device=out.device)
        self.constant(out, constant, kind)
        # copies, because the model may write into either tensor later
        value = out.detach().clone() if constant is None else out.detach() - constant
        self._rule(out, value, kind, site, 1.0, self.axis_after(out))
        for carrier in call.carriers:
            alias = aliases[id(carrier)]
            self._rule(alias, alias.detach().clone(), kind, site, -1.0, recorded(carrier).axis)
        return call.written(out)

    def _rule(
        self, at: Tensor, value: Tensor, kind: str, site: int, sign: float, axis: ItemAxis | None
    ) -> None:
        def book(gradient: Tensor) -> None:
            if self.book.kept:
                self.book.add("rules", kind, site, sign * self._share(gradient, value, axis))

        when_arrives(at, book)

    def _share(self, gradient: Tensor, constant: Tensor, axis: ItemAxis | None) -> Tensor:
        if gradient.dtype in _HALF:
            gradient, constant = gradient.float(), constant.float()
        last = axis is not None and axis.axis == gradient.dim() - 1
        # a bias vector: one product, and no tensor of the size of the output
        if constant.dim() == 1 and gradient.shape[-1] == constant.shape[0] and not last:
            return per_item(gradient @ constant, axis, self.items)
        # torch gives the conjugate of the derivative
        if gradient.is_complex():
            return per_item((gradient.conj() * constant).real, axis, self.items)
        # masked positions hold -inf or the lowest number, which are no values
        unseen = (gradient == 0) | (constant.abs() > torch.finfo(constant.dtype).max / 2)
        return per_item(torch.where(unseen, 0, gradient * constant), axis, self.items)

    def _sum(self, values: Tensor, axis: ItemAxis | None) -> Tensor:
        return per_item(values.float() if values.dtype in _HALF else values, axis, self.items)

    def next_site(self) -> int:
        """The number of the next place that books."""
        self.site += 1
        return self.site


class Booking:
    """Where one operator books what its constants take and its rule loses, in its backward."""

    def __init__(self, keeper: Bookkeeper, kind: str, site: int, axis: ItemAxis | None) -> None:
        self.keeper, self.kind, self.site, self.axis = keeper, kind, site, axis
        self.items = keeper.items
        self.entry: Entry = "biases"
        if kind == "sum" and not keeper.in_encoder:
            self.entry = "embeddings"

    def locate(self, out: Tensor) -> None:
        """Set `axis` to the item axis of the operator's output."""
        self.axis = self.keeper.axis_after(out)

    def bias(self, shares: Tensor) -> None:
        """`shares` (shape of the output z): what the operator's constant takes."""
        self._add(self.entry, shares)

    def rule(self, lost: Tensor) -> None:
        """`lost` (shape of z): what the rule loses."""
        self._add("rules", lost)

    def passed(self, above: Tensor, below: Tensor) -> None:
        """`above` (shape of z) arrives, `below` (shape of x) leaves; the rest the rule loses."""
        keeper = self.keeper
        if keeper.book.kept:
            lost = keeper._sum(above, self.axis) - keeper._sum(below, self.axis)
            keeper.book.add("rules", self.kind, self.site, lost)

    def amplification(self, factors: Tensor) -> None:
        """`factors` (shape of z): by how much relevance is amplified; the largest is kept."""
        largest = per_item(factors.detach().abs(), self.axis, self.items, largest=True)
        self.keeper.book.amplified_by(largest)

    def _add(self, entry: Entry, values: Tensor) -> None:
        keeper = self.keeper
        if keeper.book.kept:
            keeper.book.add(entry, self.kind, self.site, keeper._sum(values, self.axis))


class Converted(Booking):
    """Bookings of a rule in gradient form between converters, which book all that it loses.

    What its bias takes is no loss of the rule, and is taken off again.
    """

    def __init__(self, to: Booking) -> None:
        super().__init__(to.keeper, to.kind, to.site, to.axis)

    def bias(self, shares: Tensor) -> None:
        """Return what the operator's constant takes."""
        super().bias(shares)
        super().rule(-shares)

    def rule(self, lost: Tensor) -> None:
        """Booked by the converters."""

    def passed(self, above: Tensor, below: Tensor) -> None:
        """Booked by the converters."""


def when_arrives(out: Tensor, book: Callable[[Tensor], None]) -> None:
    """Call `book` with the gradient that arrives at `out`, in every backward pass.

    On its node, not on the tensor: a model that later writes into a view of the tensor would take
    a hook of the tensor away.
    """
    node, number = out.grad_fn, out.output_nr
    if node is None:
        raise EngineError("an operator's output has no graph: the engine cannot book at it")

    def before(gradients: tuple[Tensor | None, ...]) -> None:
        arrived = gradients[number]
        if arrived is not None:
            book(arrived)

    node.register_prehook(before)
