"""The Discord bot: a client of the HTTP API with an event cursor and no database password."""
