"""The places that run jobs: each an adapter of `ports.Backend`, each only transport for the same two JSON texts."""
