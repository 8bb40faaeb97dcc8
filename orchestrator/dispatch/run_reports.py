"""Whom the work on a run reports to, whoever does it."""

from collections.abc import Callable
from typing import NamedTuple

OnWait = Callable[[str], None]


class Reports(NamedTuple):
    """Whom the work on a run reports to."""

    #: the number of items that were finished since the call before
    items: Callable[[int], None] | None = None
    #: the number of passes of checks since then, which finish no item; and the share of all
    #: computing so far that checks took, 0 to 1
    checks: Callable[[int, float], None] | None = None
    wait: OnWait | None = None  #: why nothing can be done but to wait for somebody else


NOBODY = Reports()
