"""The gate: a run checked against a policy, rule by rule."""

from orchestrator.gate.policy import Policy, load_policy
from orchestrator.gate.policy_checks import PolicyCheck
from orchestrator.gate.policy_verdict import GateVerdict, judge, junit_xml, write_junit

__all__ = [
    "GateVerdict",
    "Policy",
    "PolicyCheck",
    "judge",
    "junit_xml",
    "load_policy",
    "write_junit",
]
