"""What the audit did not test."""

from transexplain.reports.redaction import Rules, kept
from transexplain.reports.section import Section
from transexplain.reports.section_records import Untested

_RULES = {Untested: Rules(fields=kept("what why remedy"))}

SECTION = Section(template="scope.html.j2", links=(("untested", "Not tested"),), redaction=_RULES)
