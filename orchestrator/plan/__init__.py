"""From specification to plan, and what the plan would cost."""

from orchestrator.plan.audit_plan import Prepared, prepare_audit

__all__ = ["Prepared", "prepare_audit"]
