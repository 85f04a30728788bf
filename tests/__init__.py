"""The tests, arranged by cost: unit, contract, flow, chaos, golden, architecture, cluster."""
