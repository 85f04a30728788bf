"""The harness: judges one submission on one machine. Runs in the container, with nothing but the standard library."""
