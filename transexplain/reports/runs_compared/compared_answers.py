"""Counts what two runs find in the same texts, and what they answer to the same prompts."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from transexplain.reports.runs_compared.comparison_records import (
    AnswerChanges,
    FoundChange,
    GroupAnswers,
)
from transexplain.store.readers import ItemPair
from transexplain.types.items import Attribution
from transexplain.types.plans import AT_POSITIONS, GENERATED, AuditPlan
from transexplain.types.token_labels import explained_characters

_PREDICTED = "predicted"


@dataclass(slots=True)
class FoundTotals:
    """The entities, or the answers, that two runs find in the same texts."""

    _counts: dict[str, Counter[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, before: AuditPlan, after: AuditPlan) -> "FoundTotals | None":
        """Over nothing yet; None: the model finds nothing, or not both explain what it does."""
        targets = {*before.targets} & {*after.targets}
        return cls() if after.model.head in AT_POSITIONS and _PREDICTED in targets else None

    def add(self, before: Sequence[Attribution], after: Sequence[Attribution]) -> bool:
        """Count those of one text; whether they differ."""
        old, new = _found_in(before), _found_in(after)
        for place, name in old.items():
            now = new.get(place)
            self._of(name).update(before=1, same=now == name, renamed=now not in (None, name))
        for name in new.values():
            self._of(name).update(after=1)
        return old != new

    def _of(self, name: str) -> Counter[str]:
        return self._counts.setdefault(name, Counter())

    def rows(self) -> tuple[FoundChange, ...]:
        """A row for each type, by name."""
        return tuple(
            FoundChange(
                name=name,
                before=one["before"],
                after=one["after"],
                same=one["same"],
                renamed=one["renamed"],
            )
            for name, one in sorted(self._counts.items())
        )


def _found_in(attributions: Sequence[Attribution]) -> dict[tuple[int, int] | None, str]:
    """What a run finds in one text: its characters -> its type."""
    return {
        explained_characters(one.notes): one.class_name
        for one in attributions
        if one.target == _PREDICTED
    }


@dataclass(slots=True)
class AnswerTotals:
    """The answers that two models generate to the same prompts, of all and by group."""

    unknown: int = 0
    _all: Counter[str] = field(default_factory=Counter)
    _groups: dict[str, Counter[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, before: AuditPlan, after: AuditPlan) -> "AnswerTotals | None":
        """Over nothing yet; None: not both models generate their answers."""
        generates = (one.model.head == GENERATED for one in (before, after))
        return cls() if all(generates) else None

    def add(self, pair: ItemPair, same: bool | None, groups: Collection[str]) -> None:
        """Count one prompt, which names `groups`; `same` None: what is stored does not say."""
        if same is None:
            self.unknown += 1
            return
        old, new = pair
        labelled = old.label is not None and old.label == new.label
        was, now = (labelled and one.predicted == one.label for one in (old, new))
        for counts in (self._all, *(self._groups.setdefault(one, Counter()) for one in groups)):
            counts.update(items=1, changed=not same, labelled=labelled, was=was, now=now)

    def record(self) -> AnswerChanges:
        """The counts, groups by name."""
        items, changed = self._all["items"], self._all["changed"]
        return AnswerChanges(
            items=items,
            changed=changed,
            share=changed / items if items else None,
            unknown=self.unknown,
            groups=tuple(
                GroupAnswers(
                    group=name,
                    items=one["items"],
                    changed=one["changed"],
                    share=one["changed"] / one["items"],
                    labelled=one["labelled"],
                    right_before=one["was"],
                    right_after=one["now"],
                )
                for name, one in sorted(self._groups.items())
            ),
        )
