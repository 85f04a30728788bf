"""The Discord face: a client of the HTTP interface with an event cursor and no database password."""
