"""Records for filings: the harm that an audit looks for, and the columns with categories of
people.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One way in which a model may treat people unfairly, as whoever answers for it wrote it down.

    A text that was not given is empty.
    """

    harm: str
    affected: str = ""  #: who may suffer it
    measure: str = ""  #: what would show it
    threshold: str = ""  #: from which value of the measure on it is not accepted
    mitigation: str = ""  #: what is done against it
    owner: str = ""  #: who answers for it
    review_date: str = ""  #: day on which it is looked at again, YYYY-MM-DD


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactPlan:
    """Which columns hold the categories of people, and which answers are good for them.

    Rates are those of New York City's Local Law 144 (6 RCNY 5-300 and 5-301).
    """

    favourable: tuple[str, ...]  #: classes or classifications, each looked at by itself
    sex: str | None = None  #: column of data.meta; None: there is none
    ethnicity: str | None = None  #: column of data.meta, of race or ethnicity
    unknown: tuple[str, ...] = ()  #: values that say nothing, besides the empty one
    exclude_below: float = 0.02  #: share of the items below which a category gets no ratio
    exclusion_reason: str = ""  #: why such categories are left out
    data_source: str = ""  #: where the data are from, and how they came about
    data_date: str = ""  #: day or period that they are of
    in_use_since: str = ""  #: day on which the model was first used, YYYY-MM-DD

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that there are."""
        return tuple(one for one in (self.sex, self.ethnicity) if one is not None)
