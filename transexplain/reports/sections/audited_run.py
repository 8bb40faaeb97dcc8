"""What was audited, with which methods and assumptions."""

from collections.abc import Mapping
from typing import Any

from transexplain.methods.learned_facts import without_folders
from transexplain.reports import approximating
from transexplain.reports.phrasing import short
from transexplain.reports.redaction import RedactionRules, Redactor, by, empty, kept
from transexplain.reports.report_records import Audited
from transexplain.reports.report_section import Section


def _parameters(value: Mapping[str, Any], audited: Audited, _redactor: Redactor) -> Any:
    return without_folders({"name": audited.method, "params": value})["params"]


_RULES: Mapping[type, RedactionRules] = {
    Audited: RedactionRules(
        # without the folders of the machine that it was made on
        fields={
            "root": empty(""),
            "model": by(short),
            "dataset": by(short),
            "parameters": _parameters,
            **kept(
                "run_id name state created finished plan_digest version model_digest dtype device "
                "modality classes fingerprint method targets at unit long_text max_length payload "
                "window stride long_text_join task inputs_digest manifest_digest"
            ),
        }
    ),
}


SECTION = Section(
    template="about.html.j2",
    links=(("audited", "What was audited"), ("methods", "Methods")),
    redaction=_RULES,
    drawing=lambda _report: {"method_of": approximating.method_of},
)
