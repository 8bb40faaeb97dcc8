"""The methods that exist: name -> facts. A new method is one file and one entry here."""

from dataclasses import replace

from transexplain.methods.facts import MethodFacts, no_backward

_LRP = "transexplain.methods.relevance:explain"
_BACH = "Bach et al. 2015"
_ALI = "Ali et al. 2022, section 4"

_RELEVANCE = {
    "lrp": MethodFacts(place=_LRP, source=f"{_ALI}, with the identity rule for activations"),
    "lrp-ah": MethodFacts(place=_LRP, source=f"{_ALI}, Eq. 8"),
    "lrp-ln": MethodFacts(place=_LRP, source=f"{_ALI}, Eq. 9"),
    "lrp-ah-ln": MethodFacts(place=_LRP, source=_ALI),
    "attnlrp": MethodFacts(place=_LRP, source="Achtibat et al. 2024"),
    "lrp-epsilon": MethodFacts(place=_LRP, source=f"{_BACH}, Eq. 58"),
    "lrp-gamma": MethodFacts(place=_LRP, source="Montavon et al. 2019, section 10.2"),
    "lrp-alpha-beta": MethodFacts(place=_LRP, source=f"{_BACH}, Eq. 60", reads_target="weakly"),
    "chefer-lrp": MethodFacts(
        place="transexplain.methods.relevance:explain_chefer",
        source="Chefer et al. 2021a, Eq. 3-10",
        unit="unit_relevance",
        reads_target="weakly",
    ),
}

RELEVANCE = {name: replace(facts, needs_rules=True) for name, facts in _RELEVANCE.items()}

GRADIENT = {
    "gradient-x-input": MethodFacts(
        place="transexplain.methods.relevance:explain_gradient",
        source="Shrikumar et al. 2017, section 2.2",
        needs_rules=True,
    ),
}

FLOOR = {
    "random": MethodFacts(
        place="transexplain.methods.random:explain",
        source="the floor: relevance that knows nothing",
        unit="score",
        reads_target="no",
        cost=no_backward,
    ),
}

TABLE: dict[str, MethodFacts] = {**RELEVANCE, **GRADIENT, **FLOOR}
