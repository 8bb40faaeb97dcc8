"""The gate: whether a run keeps what a policy asks of it, rule by rule."""

from orchestrator.gating.checks import Check
from orchestrator.gating.judging import Verdict, judge
from orchestrator.gating.junit import junit_xml, write_junit
from orchestrator.gating.policy import Policy, load_policy

__all__ = ["Check", "Policy", "Verdict", "judge", "junit_xml", "load_policy", "write_junit"]
