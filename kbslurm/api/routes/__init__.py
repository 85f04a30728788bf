"""The calls of the HTTP API, by caller and subject."""
