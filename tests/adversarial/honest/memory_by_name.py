# ruff: noqa
# mypy: ignore-errors
# does: memory that processes find by its name, given back and kept, and a list in it
# levels: 1 2
import multiprocessing
import struct
from multiprocessing.shared_memory import ShareableList, SharedMemory

CONTEXTS = {name: multiprocessing.get_context(name) for name in ("fork", "spawn")}
spawned = []


def fill(name, count, list_name):
    shared, told = SharedMemory(name), ShareableList(name=list_name)
    numbers = struct.unpack_from(f"<{count}d", shared.buf)
    struct.pack_into(f"<{count}d", shared.buf, 0, *sorted(numbers))
    told[0] = "done"
    shared.close()
    told.shm.close()


def custom_kernel(data):
    if not data:
        return []
    shared, told = SharedMemory(create=True, size=8 * len(data)), ShareableList(["open", len(data)])
    try:
        struct.pack_into(f"<{len(data)}d", shared.buf, 0, *data)
        method = "fork" if spawned else "spawn"  # once is enough of what takes a tenth of a second
        spawned.append(method)
        child = CONTEXTS[method].Process(target=fill, args=(shared.name, len(data), told.shm.name))
        child.start()
        child.join()
        assert child.exitcode == 0 and told[0] == "done", child.exitcode
        return list(struct.unpack_from(f"<{len(data)}d", shared.buf))
    finally:
        for one in (shared, told.shm):
            one.close()
            one.unlink()
