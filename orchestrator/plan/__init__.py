"""From specification to plan, and its estimated cost."""

from orchestrator.plan.audit_plan import Prepared, prepare_audit

__all__ = ["Prepared", "prepare_audit"]
