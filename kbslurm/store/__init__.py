"""Postgres: tables and statements. Everyone else uses `postgres.PostgresStore`."""
