"""The gate's verdict as JUnit XML."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from report_samples import biased_run
from typer.testing import CliRunner

from orchestrator.cli import app
from orchestrator.gate import Check, Verdict, junit_xml
from transexplain.errors import ConfigurationError
from transexplain.store.revisions import open_database

KEPT = Check(rule="max_failed", passed=True, measured=0.0, threshold=0.1, text="0 of 9")
BROKEN = Check(rule="verdicts", passed=False, measured=1.0, threshold=0.0, text='<x> & "y"')
VERDICT = Verdict(run_id="r-1", name="nightly", passed=False, checks=(KEPT, BROKEN))


def test_one_case_a_rule_and_a_failure_with_its_reason() -> None:
    top = ElementTree.fromstring(junit_xml(VERDICT))
    (suite,) = top.findall("testsuite")
    for one in (top, suite):
        assert (one.get("tests"), one.get("failures"), one.get("errors")) == ("2", "1", "0")
    assert [case.get("name") for case in suite.findall("testcase")] == ["max_failed", "verdicts"]
    (failure,) = suite.findall("testcase/failure")
    assert failure.get("message") == failure.text == BROKEN.text
    assert suite.findtext("testcase/system-out") == "0 of 9"
    (about,) = suite.findall("properties/property")
    assert about.attrib == {"name": "run_id", "value": "r-1"}


@given(st.text(), st.text(), st.booleans())
def test_any_text_gives_xml_that_parses(text: str, name: str, passed: bool) -> None:
    one = replace(BROKEN, text=text, passed=passed)
    document = junit_xml(replace(VERDICT, name=name, checks=(one,)))
    top = ElementTree.fromstring(document.encode())
    assert top.get("failures") == str(int(not passed))
    printed = top.findtext(".//system-out" if passed else ".//failure") or ""
    kept = [c for c in text if c not in "\r\n" and (c >= " " or c == "\t")]
    assert sum(c not in "\r\n" for c in printed) >= len([c for c in kept if c.isalnum()])


@pytest.mark.exhaustive
def test_the_verb_writes_it_whatever_the_verdict(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'gate.db'}"
    with open_database(url, upgrade=True) as db:
        run_id = biased_run(db)
    policy = tmp_path / "policy.yaml"
    out = tmp_path / "new" / "gate.xml"
    words = ["gate", "--policy", str(policy), "--db", url, "--junit", str(out)]
    for limit, failures, code in ((0.1, "0", 0), (0.01, "1", 1)):
        policy.write_text(yaml.safe_dump({"max_failed": limit}), encoding="utf-8")
        found = CliRunner().invoke(app, words)
        assert found.exit_code == code, found.output
        top = ElementTree.parse(out).getroot()
        assert (top.get("tests"), top.get("failures")) == ("2", failures)
        assert top.find(".//property").attrib["value"] == run_id  # type: ignore[union-attr]
    refused = CliRunner().invoke(app, [*words[:-1], str(tmp_path)])
    assert isinstance(refused.exception, ConfigurationError)
    assert "is a folder" in str(refused.exception)


@pytest.mark.parametrize("bad", ["\0", "\x1b", "\ud800", "\uffff"])
def test_characters_that_xml_forbids_are_replaced(bad: str) -> None:
    document = junit_xml(replace(VERDICT, checks=(replace(BROKEN, text=f"a{bad}b"),)))
    assert ElementTree.fromstring(document).findtext(".//failure") == "a\ufffdb"
