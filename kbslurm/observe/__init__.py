"""What the service tells of itself: log lines, numbers for Prometheus, and places where a test may kill it."""
