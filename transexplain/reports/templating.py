"""The templates of the reports: every value is escaped unless a report made it itself."""

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@cache
def environment() -> Environment:
    """Templates of this package, escaping on for every one; a missing value is an error."""
    return Environment(
        loader=PackageLoader("transexplain.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def storable(text: str) -> str:
    """`text` with NUL and lone surrogates, which no HTML file can hold, as U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)
