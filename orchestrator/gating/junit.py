"""A gate's verdict as JUnit XML, which continuous integration shows rule by rule."""

from pathlib import Path
from xml.etree import ElementTree

from orchestrator.gating.checks import Check
from orchestrator.gating.judging import Verdict
from transexplain.exports.files import write_text
from transexplain.reports.escaping import xml_text


def junit_xml(found: Verdict) -> str:
    """One suite of one test case per rule; a rule that is not kept is a failure with its reason.

    Characters that XML cannot hold become the replacement character.
    """
    broken = str(sum(not one.passed for one in found.checks))
    counts = {"tests": str(len(found.checks)), "failures": broken, "errors": "0", "skipped": "0"}
    top = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(top, "testsuite", {"name": _suite(found), **counts})
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "run_id", "value": found.run_id})
    for one in found.checks:
        _case(suite, _suite(found), one)
    ElementTree.indent(top)
    body = ElementTree.tostring(top, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def write_junit(found: Verdict, path: Path) -> None:
    """Write `junit_xml`; raises ConfigurationError where `path` cannot be written."""
    write_text(path, junit_xml(found))


def _suite(found: Verdict) -> str:
    return xml_text(f"transexplain gate: {found.name}")


def _case(suite: ElementTree.Element, name: str, one: Check) -> None:
    about = {"classname": name, "name": xml_text(one.rule), "time": "0"}
    case = ElementTree.SubElement(suite, "testcase", about)
    text = xml_text(one.text)
    if one.passed:
        ElementTree.SubElement(case, "system-out").text = text
    else:
        failure = ElementTree.SubElement(case, "failure", {"message": text, "type": one.rule})
        failure.text = text
