"""Pages for people: rendered here, whole without a script, live with one. The session's cookie says who reads."""
