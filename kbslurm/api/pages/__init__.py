"""Pages for people: rendered here, whole without a script, live with one. The session's cookie says who reads."""

from kbslurm.api.pages.addresses import routes
from kbslurm.api.pages.rendering import page_of_error

__all__ = ["page_of_error", "routes"]
