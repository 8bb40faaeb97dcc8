"""Monitoring: metrics for Prometheus, and probes of liveness and readiness."""
