# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: leave files beside the link's, which lie in the node's memory and in no limit, and take the input's pages away
# verdict: passed
# never: FOUND
import ctypes
import gc
import os

_libc = ctypes.CDLL(None, use_errno=True)


def _leave(path):
    try:
        with open(path, "wb") as file:
            file.write(b"x" * (1 << 20))
        print("FOUND", path)
    except OSError:
        pass


def custom_kernel(data):
    line = next(t for t in gc.get_objects() if type(t).__name__ == "RunnerEnd")
    for name in ("more", "report.json", "log2"):
        _leave(os.path.join(line.folder, name))
    for name in ("bell", "in", "out"):
        try:
            os.rename(os.path.join(line.folder, name), os.path.join(line.folder, "moved"))
            print("FOUND", name)
        except OSError:
            pass
    return sorted(data)
