"""From specification to plan, and its estimated cost."""

from orchestrator.plan.audit_plan import PreparedAudit, prepare_audit

__all__ = ["PreparedAudit", "prepare_audit"]
