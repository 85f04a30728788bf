"""Postgres: the rows and their statements. `postgres.PostgresStore` is what everybody else uses."""
