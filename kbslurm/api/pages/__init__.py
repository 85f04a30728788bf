"""Web pages, rendered here; complete without JavaScript, live with it. The session cookie identifies the reader."""
