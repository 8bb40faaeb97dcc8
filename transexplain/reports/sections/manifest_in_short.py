"""The manifest in short: what decided the numbers."""

from collections.abc import Mapping

from transexplain.reports.redaction import RedactionRules, kept, within
from transexplain.reports.section import Section
from transexplain.reports.section_records import HashedFile, Provenance

_RULES: Mapping[type, RedactionRules] = {
    Provenance: RedactionRules(
        fields={
            "files": within,
            **kept("software machines attention git seeds shards attempts workers seconds"),
        }
    ),
    HashedFile: RedactionRules(fields=kept("part name sha256")),
}


SECTION = Section(
    template="manifest.html.j2",
    links=(("manifest", "Manifest"),),
    redaction=_RULES,
    present=lambda report: report.provenance is not None,
)
