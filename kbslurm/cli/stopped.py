"""^C, once it has left a command."""


class Stopped(Exception):
    """A command was interrupted. Not a KeyboardInterrupt, which typer takes for an ordinary exit with 130."""
