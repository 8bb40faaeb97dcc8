"""What the audit did not test."""

from collections.abc import Mapping

from transexplain.reports.redaction import RedactionRules, kept
from transexplain.reports.section import Section
from transexplain.reports.section_records import Untested

_RULES: Mapping[type, RedactionRules] = {Untested: RedactionRules(fields=kept("what why remedy"))}

SECTION = Section(template="scope.html.j2", links=(("untested", "Not tested"),), redaction=_RULES)
