"""The audit specification: one class per section, each with its options, checks and paths."""

from orchestrator.spec.audit_spec import AuditSpec, load_spec

__all__ = ["AuditSpec", "load_spec"]
