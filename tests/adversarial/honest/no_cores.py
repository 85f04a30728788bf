# ruff: noqa
# mypy: ignore-errors
# does: turn core files off, as many programs do; with a limit of 0 the kernel would start the node's handler for each
import resource

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if resource.getrlimit(resource.RLIMIT_CORE) != (1, 1):
    raise RuntimeError("a crash would start the node's handler of cores")


def custom_kernel(data):
    return sorted(data)
