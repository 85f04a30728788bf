"""Postgres: the rows, the statements, the store. `postgres.PostgresStore` is what the rest of the house uses."""
