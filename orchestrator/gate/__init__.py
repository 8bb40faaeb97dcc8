"""The gate: a run checked against a policy, rule by rule."""

from orchestrator.gate.policy import Policy, load_policy
from orchestrator.gate.policy_checks import Check
from orchestrator.gate.policy_verdict import Verdict, judge, junit_xml, write_junit

__all__ = ["Check", "Policy", "Verdict", "judge", "junit_xml", "load_policy", "write_junit"]
