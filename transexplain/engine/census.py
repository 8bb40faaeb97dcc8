"""Counts which operators one forward and backward pass meets, and which rule handles each."""

import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor, nn

from transexplain.engine.composites import Composite
from transexplain.engine.ledger import Entry, LedgerBook
from transexplain.engine.mode import RelevanceMode
from transexplain.engine.operator_call import Call, RefusalError, call_site
from transexplain.engine.operators import KIND, KINDS, operator_of
from transexplain.engine.tensor_record import mark_seen, tensors_in

PLAIN = "none: plain gradient"
CUT = "carries no relevance on"
_IDENTITY, _HALF = "identity f(x)/x", "half to each factor"
#: autograd node of the relevance form -> its rule
_BY_NODE = {
    "PassOn": "passed on whole",
    "SumOfTwo": "by value, rescaled",
    "ToGradient": "by value",
    "AtInputLayer": "input rule",
}


def rule_of(mode: RelevanceMode, call: Call, out: Tensor) -> str:
    """The rule that a mode applied to `call`, whose (first) result is `out`."""
    kind = KINDS.get(operator_of(call.name).kind or "")
    # the operator's own node, where its value was written back into its first argument
    node: Any = out.grad_fn
    while _is(node, "CopyBackwards") and node.next_functions[-1][0] is not None:
        node = node.next_functions[-1][0]
    decided_by = None if kind is None else kind.decided_by
    if decided_by == "linear" and not _is(node, "AtInputLayer"):
        return str(mode.linear_rule(call))
    for name, words in _BY_NODE.items():
        if _is(node, name):
            return words
    if _is(node, "IdentityRule") and decided_by in ("product", "activation", "norm"):
        return _IDENTITY
    if decided_by == "product":
        return _of_product(mode.composite, call, out, node)
    if kind is not None and kind.words and not mode.composite.relevance_form:
        chosen = str(getattr(mode.composite, str(decided_by)))
        return kind.words.get(chosen, chosen)
    if not out.requires_grad:
        return CUT
    return "linear: by value" if kind is None else kind.wording


def _of_product(composite: Composite, call: Call, out: Tensor, node: Any) -> str:
    scaled = KINDS["scale"].words["constant"]
    if not out.requires_grad:
        return scaled
    factors = (*call.args, *call.kwargs.values())
    if sum(isinstance(factor, Tensor) and factor.requires_grad for factor in factors) == 1:
        return "linear: constant factor"
    if any(_is(before, "ScaledGradient") for before, _ in getattr(node, "next_functions", ())):
        return _HALF
    if composite.product == "gradient":
        return KINDS["scale"].words["gradient"]
    return scaled if operator_of(call.name).kind == "division" else "gate constant"


def _is(node: Any, name: str) -> bool:
    return type(node).__name__.startswith(name)


_Key = tuple[str, str, str]  # name, kind, rule


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorUse:
    """One operator under one rule, over a whole pass."""

    name: str  #: as the model calls it
    kind: str  #: of the table of operators; `unknown` where it is in none
    rule: str
    count: int = 0  #: times met
    seconds: float = 0.0  #: of the forward pass, inner operators not counted twice
    embeddings: float = 0.0  #: constants added before the encoder, in logits, over all items
    biases: float = 0.0  #: constants, in logits, over all items
    rules: float = 0.0  #: made (negative) or lost, in logits, over all items


@dataclass(frozen=True, kw_only=True, slots=True)
class Uncovered:
    """An operator without a rule, at one place of the model's code."""

    operator: str
    where: str  #: file, line, function and module
    why: str
    count: int = 1


@dataclass(slots=True)
class _Visit:
    """One operator while it runs; an operator may call others."""

    refused: bool = False
    inner: float = 0.0  #: seconds


class Census:
    """Counts operators while a `RelevanceMode` runs, and lets the pass outlive a refusal.

    What has no rule is noted and goes on with its plain gradient, so that one pass lists all of
    it. The relevance of such a pass is no explanation; only a census may run it.
    """

    def __init__(self, root: nn.Module | None = None) -> None:
        self.root = root  #: module that qualified names start from
        self.dtypes: set[torch.dtype] = set()  #: number types that relevance passed through
        self._uses: dict[_Key, OperatorUse] = {}
        self._uncovered: Counter[tuple[str, str, str]] = Counter()
        self._owners: dict[int, _Key] = {}  # of the ledger's sites
        self._visits: list[_Visit] = []
        self._book: _CountedBook | None = None

    def book(self, items: int) -> LedgerBook:
        """The ledger book of the pass; the census reads what is booked at which operator."""
        self._book = _CountedBook(items)
        return self._book

    @property
    def operators(self) -> tuple[OperatorUse, ...]:
        """What was met, in the order of the forward pass, with what the latest backward booked."""
        sums: dict[_Key, dict[str, Any]] = {
            key: dict.fromkeys(get_args(Entry), 0.0) for key in self._uses
        }
        for site, entry, values in self._book.booked if self._book else ():
            sums[self._owners[site]][entry] += float(values.sum())
        return tuple(replace(use, **sums[key]) for key, use in self._uses.items())

    @property
    def uncovered(self) -> tuple[Uncovered, ...]:
        """Return what has no rule, one entry per call site."""
        return tuple(
            Uncovered(operator=operator, where=where, why=why, count=count)
            for (operator, where, why), count in self._uncovered.items()
        )

    def refused(self, call: Call, error: Exception) -> None:
        """Note that `call` has no rule; to be called from within the mode."""
        why = error.why if isinstance(error, RefusalError) else f"{type(error).__name__}: {error}"
        self._uncovered[call.name, call_site(self.root), why] += 1
        if self._visits:
            self._visits[-1].refused = True

    def watch(self, mode: RelevanceMode, call: Call) -> Any:
        """Apply the mode's rule to `call` and note it; its value, whatever the rule does."""
        if any(carrier is mode.input_tensor for carrier in call.carriers):
            return mode.apply(call)  # the mode's own copy of the input layer; models see the copy
        visit, first = _Visit(), mode.books.site + 1
        self._visits.append(visit)
        _wait(call)
        begun = time.perf_counter()
        try:
            out = mode.apply(call)
        except Exception as error:  # a rule that fails covers nothing either
            if mode.inside and isinstance(error, RefusalError):
                raise  # it is refused where relevance arrives, if anywhere
            out = call.run()
            mark_seen(tensors_in(out))
            self.refused(call, error)
        finally:
            self._visits.pop()
        _wait(call)
        seconds = time.perf_counter() - begun
        if self._visits:
            self._visits[-1].inner += seconds
        floats = [t for t in tensors_in(out) if t.is_floating_point() or t.is_complex()]
        if floats:
            self.dtypes.update(t.dtype for t in floats if t.requires_grad)
            rule = PLAIN if visit.refused else rule_of(mode, call, floats[0])
            self._note(call, rule, range(first, mode.books.site + 1), seconds - visit.inner)
        return out

    def _note(self, call: Call, rule: str, sites: range, seconds: float) -> None:
        kind = KIND.get(call.name, "unknown")
        key = call.name, kind, rule
        use = self._uses.get(key) or OperatorUse(name=call.name, kind=kind, rule=rule)
        self._uses[key] = replace(use, count=use.count + 1, seconds=use.seconds + seconds)
        for site in sites:
            self._owners.setdefault(site, key)  # an inner operator has booked already


class _CountedBook(LedgerBook):
    """A ledger book that also records what was booked at which operator."""

    def __init__(self, items: int) -> None:
        super().__init__(items)
        #: operator, entry and (B,) logits of the latest backward pass
        self.booked: list[tuple[int, Entry, Tensor]] = []

    def start(self, *, keep: bool = True) -> None:
        super().start(keep=keep)
        self.booked.clear()

    def add(self, entry: Entry, kind: str, site: int, values: Tensor) -> None:
        super().add(entry, kind, site, values)
        self.booked.append((site, entry, values.detach()))


def _wait(call: Call) -> None:
    """Wait for a device, so that the seconds are those of the current operator."""
    if any(carrier.is_cuda for carrier in call.carriers):
        torch.cuda.synchronize()
