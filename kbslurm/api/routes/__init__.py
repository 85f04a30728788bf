"""The calls of the HTTP API, by who makes them and what they are about."""
