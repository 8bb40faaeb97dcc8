"""Explanation methods, one per file; this table is the list of what exists."""

from transexplain.registry import Registry
from transexplain.types import Unit

METHODS = Registry(
    "method",
    {
        "lrp": "transexplain.methods.relevance:explain",
        "lrp-ah": "transexplain.methods.relevance:explain",
        "lrp-ln": "transexplain.methods.relevance:explain",
        "lrp-ah-ln": "transexplain.methods.relevance:explain",
        "gradient-x-input": "transexplain.methods.relevance:explain",
    },
)

#: The unit of each method's relevance; what is not listed is in logits.
UNITS: dict[str, Unit] = {}


def unit_of(method: str) -> Unit:
    """The unit of a method's relevance: group statistics in logits need `logits`."""
    return UNITS.get(method, "logits")
