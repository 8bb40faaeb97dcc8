"""What monitors ask: metrics for Prometheus, and whether a server is alive and ready."""
