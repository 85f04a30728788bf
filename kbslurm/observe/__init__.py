"""Observability: log lines, Prometheus metrics, and crash points for tests."""
