"""The places that run jobs: adapters of `ports.Backend` that all transport the same two JSON texts."""
