# ruff: noqa
# mypy: ignore-errors
# group: exfiltration
# catalogue: X3
# tries: leave its memory, inputs and all, as a core file for later
# verdict: error
import os
import resource

try:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except (OSError, ValueError):
    pass


def custom_kernel(data):
    os.abort()
