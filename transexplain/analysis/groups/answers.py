"""A model's answer about a target: its log-odds and its probability.

A logit by itself can be moved together with all others without any effect on the answer; log-odds
against the other classes cannot. For two classes they are the difference of the two logits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from transexplain.errors import ConfigurationError, TargetError
from transexplain.types.answer_spans import EXACT
from transexplain.types.items import Target
from transexplain.types.label_sets import set_members
from transexplain.types.plans import GENERATED, AuditPlan
from transexplain.types.targets import ClassNames, parse_target
from transexplain.types.token_labels import LabelScheme

_ALMOST_CERTAIN = 1e-12  #: nats below 0, of an answer whose probability is 1 in floats
#: classes beyond which the targets `predicted`, `label`, `all` and `top` name no answers
MOST = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Some classes against others; an item is *selected* where one of the first is predicted.

    A head with a single logit has no other classes: its logit is the log-odds already. So it is of
    each label of a model that may give an item several.
    """

    name: str
    #: class indices; none: a type of entity or an exact answer, which have no logit of their own
    plus: tuple[int, ...]
    minus: tuple[int, ...]  #: class indices; empty for a single logit
    several: bool = False  #: classes are labels, of which an item may have any number
    logarithm: bool = False  #: the logit is the log-probability of a generated answer

    @property
    def agrees(self) -> bool:
        """Return whether it is that a question is answered as the data says, and no class."""
        return not self.plus and not self.several

    @property
    def is_type(self) -> bool:
        """Return whether it is a type of entities, of which a text may have any number."""
        return self.several and not self.plus

    @property
    def is_number(self) -> bool:
        """Return whether it is a model's only output: a number, which every item has."""
        return bool(self.plus) and not (self.minus or self.several or self.logarithm)

    def selects(self, text: str, classes: Sequence[str]) -> bool:
        """Return whether a predicted (or given) class, or set of labels, has one of the first."""
        names = {classes[place] for place in self.plus} or {self.name}
        return text in names or (self.several and not names.isdisjoint(set_members(text)))

    def log_odds(self, logits: ArrayLike) -> NDArray[np.float64]:
        """(...,) log-odds, in logits, of `plus` against `minus`, from logits (..., C).

        Of several labels those of any among `plus`: log(prod(1 + exp(z)) - 1), the labels taken as
        independent, as their sigmoids are.
        """
        values = np.asarray(logits, dtype=np.float64)
        if self.logarithm:
            certain = np.minimum(values[..., 0], -_ALMOST_CERTAIN)
            return np.asarray(certain - np.log(-np.expm1(certain)))
        if self.several and len(self.plus) > 1 and not self.minus:
            none = np.logaddexp(0.0, values[..., list(self.plus)]).sum(axis=-1)
            return np.asarray(none + np.log(-np.expm1(-none)))
        odds = _together(values, self.plus)
        if self.minus:
            odds = odds - _together(values, self.minus)
        return np.asarray(odds)

    def odds_of(self, logits: Sequence[float]) -> float:
        """`log_odds` of one item, from its logits (C,)."""
        if len(self.plus) == 1 and len(self.minus) == 1:
            return logits[self.plus[0]] - logits[self.minus[0]]
        return float(self.log_odds(logits))


def _together(logits: NDArray[np.float64], classes: Sequence[int]) -> NDArray[np.float64]:
    """(...,) the logarithm of the sum of exponentials over some classes of logits (..., C)."""
    if len(classes) == 1:  # exactly what the sum would give, at a tenth of the time
        return np.asarray(logits[..., classes[0]])
    from scipy.special import logsumexp  # slow to import, and a wrong request comes first

    return np.asarray(logsumexp(logits[..., list(classes)], axis=-1))


def probability(log_odds: ArrayLike) -> NDArray[np.float64]:
    """Probabilities, 0 to 1, of log-odds of any shape."""
    from scipy.special import expit  # slow to import, and a wrong request comes first

    return np.asarray(expit(np.asarray(log_odds, dtype=np.float64)))


def answers_of(plan: AuditPlan) -> tuple[Answer, ...]:
    """The answers that a plan's groups are compared by, each once.

    A contrast, a class and a classification are what they name. The other targets stand for every
    class; of two classes the second one is enough, since the other is its mirror image, but not
    of two labels that an item may both have. Empty where a model of more than `MOST` classes has
    no target that names one.
    """
    names = ClassNames(plan.model.classes, plan.classifications)
    answers: dict[tuple[tuple[int, ...], tuple[int, ...]], Answer] = {}
    for spec in plan.targets:
        try:
            target, several = parse_target(spec, names), plan.several is not None
        except TargetError:
            if plan.task != "imported":
                raise
            continue  # a group of classes that the file alone knows, or a contrast of such
        if plan.model.head == "span":
            return (Answer(name=EXACT, plus=(), minus=()),)
        if plan.model.head == "tokens":
            types = LabelScheme(plan.model.classes).types
            some = types if len(types) <= MOST else ()
            return tuple(Answer(name=kind, plus=(), minus=(), several=True) for kind in some)
        if plan.model.head == GENERATED:
            return (Answer(name=GENERATED, plus=(0,), minus=(), logarithm=True),)
        for answer in _of_target(target, plan.model.classes, several):
            if (answer.minus, answer.plus) not in answers:
                answers.setdefault((answer.plus, answer.minus), answer)
    return tuple(answers.values())


def _of_target(target: Target, classes: Sequence[str], several: bool) -> Iterator[Answer]:
    every = range(len(classes))
    if target.kind == "contrast":
        name = target.name.removesuffix(f"-{classes[target.minus[0]]}") if target.minus else ""
        named = name or target.name
        yield Answer(name=named, plus=target.plus, minus=target.minus, several=several)
    elif target.plus:
        yield answer_of(target.name, target.plus, len(classes), several=several)
    elif len(classes) <= MOST:
        for place in every if several or len(classes) != 2 else (1,):
            yield answer_of(classes[place], (place,), len(classes), several=several)


def answer_of(name: str, plus: tuple[int, ...], classes: int, *, several: bool) -> Answer:
    """Some of so many classes against all others; of several labels against nothing."""
    rest = () if several else tuple(place for place in range(classes) if place not in plus)
    return Answer(name=name, plus=plus, minus=rest, several=several)


def favourable_answers(plan: AuditPlan) -> tuple[Answer, ...]:
    """Return what the plan's categories are compared by; nothing without `impact`.

    Raises ConfigurationError: an answer is no class or classification of the model or is all of
    its classes, or values of columns are not stored.
    """
    if plan.impact is None:
        return ()
    kept = plan.privacy.store_text if plan.privacy else "full"
    if kept != "full":
        raise ConfigurationError(
            f"groups.impact counts by values of {', '.join(plan.impact.columns)}, but store_text: "
            f"{kept} stores none of them readably; use store_text: full, and `redact` for what "
            "texts may not say"
        )
    names = ClassNames(plan.model.classes, plan.classifications)
    several = plan.several is not None
    return tuple(_favourable(name, names, several=several) for name in plan.impact.favourable)


def _favourable(name: str, names: ClassNames, *, several: bool) -> Answer:
    plus = names.members(name)
    if not several and 1 < len(names.classes) == len(plus):
        raise ConfigurationError(
            f"groups.impact.favourable: {name!r} holds every class of the model, so everybody "
            "would be selected; name the classes that are good for a person"
        )
    shown = name if name in names.own else names.classes[plus[0]]
    return answer_of(shown, plus, len(names.classes), several=several)
