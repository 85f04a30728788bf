"""The GPU's driver, as far as the harness needs it: CUDA's driver API (libcuda) or HIP (libamdhip64), called directly.

Judge and runner both use it, each in a process of its own; neither needs torch, a toolkit or a compiler for that. Every
call that fails is a `DriverError` of one sentence. Copies and fills are queued on a stream of this class's own and
waited for by asking an event, so that a device that hangs costs the one who waits a time limit and not its life.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass

CHUNK = 4 << 20  # pinned memory for copies between host and device
LEAST_CUDA = 11_040  # from here on everything that is asked for here has the name that it has today
LIMIT_S = 60.0
INVALID, NO_MEMORY, NO_DEVICE, NOT_READY, NOT_SUPPORTED, BUSY = 1, 2, 100, 600, 801, 46
PINNED, FILE_DESCRIPTOR, ON_DEVICE, READ_WRITE = 1, 1, 1, 3
HOST_MEMORY, DEVICE_MEMORY, DEVICE_TO_HOST = 1, 2, 2
COMPUTE_MODE = {"cuda": 20, "hip": 6}
EXPORTABLE = 103  # CUDA's attribute; HIP is asked by trying
L2_SIZE = {"cuda": 38, "hip": 19}
FLUSH_TIMES = 2  # so many times the L2 cache is written to push out what is in it
HIP_FLUSH = 512 << 20  # some devices have a cache of 256 MiB behind the one that HIP tells of
EXCLUSIVE, PROHIBITED = 3, 2
HIP_BY_VALUE = 70_100_000  # from this version on HIP takes an imported descriptor itself, before that its address

# our name: (CUDA's name, HIP's name)
NAMES = {
    "init": ("cuInit", "hipInit"),
    "version": ("cuDriverGetVersion", "hipDriverGetVersion"),
    "count": ("cuDeviceGetCount", "hipGetDeviceCount"),
    "get": ("cuDeviceGet", "hipDeviceGet"),
    "name": ("cuDeviceGetName", "hipDeviceGetName"),
    "pci": ("cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId"),
    "uuid": ("cuDeviceGetUuid_v2", "hipDeviceGetUuid"),
    "attribute": ("cuDeviceGetAttribute", "hipDeviceGetAttribute"),
    "retain": ("cuDevicePrimaryCtxRetain", ""),  # HIP creates it once the device is chosen
    "release_context": ("cuDevicePrimaryCtxRelease_v2", ""),
    "synchronize": ("cuCtxSynchronize", "hipDeviceSynchronize"),
    "memory": ("cuMemGetInfo_v2", "hipMemGetInfo"),
    "allocate": ("cuMemAlloc_v2", "hipMalloc"),
    "free": ("cuMemFree_v2", "hipFree"),
    "pin": ("cuMemAllocHost_v2", "hipHostMalloc"),
    "unpin": ("cuMemFreeHost", "hipHostFree"),
    "granularity": ("cuMemGetAllocationGranularity", "hipMemGetAllocationGranularity"),
    "create": ("cuMemCreate", "hipMemCreate"),
    "release": ("cuMemRelease", "hipMemRelease"),
    "export": ("cuMemExportToShareableHandle", "hipMemExportToShareableHandle"),
    "import": ("cuMemImportFromShareableHandle", "hipMemImportFromShareableHandle"),
    "reserve": ("cuMemAddressReserve", "hipMemAddressReserve"),
    "unreserve": ("cuMemAddressFree", "hipMemAddressFree"),
    "map": ("cuMemMap", "hipMemMap"),
    "unmap": ("cuMemUnmap", "hipMemUnmap"),
    "access": ("cuMemSetAccess", "hipMemSetAccess"),
    "stream": ("cuStreamCreate", "hipStreamCreateWithFlags"),
    "to_device": ("cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync"),
    "to_host": ("cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync"),
    "within": ("cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync"),
    "fill": ("cuMemsetD8Async", "hipMemsetD8Async"),
    "unpersist": ("cuCtxResetPersistingL2Cache", "hipCtxResetPersistingL2Cache"),
    "gather": ("cuMemcpy2DAsync_v2", "hipMemcpy2DAsync"),
    "event": ("cuEventCreate", "hipEventCreateWithFlags"),
    "record": ("cuEventRecord", "hipEventRecord"),
    "query": ("cuEventQuery", "hipEventQuery"),
    "event_synchronize": ("cuEventSynchronize", "hipEventSynchronize"),
    "elapsed": ("cuEventElapsedTime", "hipEventElapsedTime"),
}
_LIBRARIES = {"cuda": ("libcuda.so.1",), "hip": ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6")}
_u64, _size = ctypes.c_uint64, ctypes.c_size_t
_ADDRESSES = {  # addresses and sizes must not be truncated to an int
    "allocate": [ctypes.c_void_p, _size],
    "free": [_u64],
    "release": [_u64],
    "export": [ctypes.c_void_p, _u64, ctypes.c_int, ctypes.c_ulonglong],
    "import": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int],
    "create": [ctypes.c_void_p, _size, ctypes.c_void_p, ctypes.c_ulonglong],
    "reserve": [ctypes.c_void_p, _size, _size, _u64, ctypes.c_ulonglong],
    "unreserve": [_u64, _size],
    "map": [_u64, _size, _size, _u64, ctypes.c_ulonglong],
    "unmap": [_u64, _size],
    "access": [_u64, _size, ctypes.c_void_p, _size],
    "to_device": [_u64, ctypes.c_void_p, _size, ctypes.c_void_p],
    "to_host": [ctypes.c_void_p, _u64, _size, ctypes.c_void_p],
    "within": [_u64, _u64, _size, ctypes.c_void_p],
    "fill": [_u64, ctypes.c_ubyte, _size, ctypes.c_void_p],
    "record": [ctypes.c_void_p, ctypes.c_void_p],
    "query": [ctypes.c_void_p],
    "event_synchronize": [ctypes.c_void_p],
    "elapsed": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p],
    "unpin": [ctypes.c_void_p],
}


class DriverError(RuntimeError):
    """A call that failed, in one sentence; `code` is the driver's."""

    def __init__(self, said: str, code: int = 0) -> None:
        super().__init__(said)
        self.code = code


class NoDriver(DriverError):
    """This machine has no GPU driver library."""


class NoDevice(DriverError):
    """The driver is installed but shows no device."""


class DriverTooOld(DriverError):
    """The driver lacks a function that is needed."""


class OutOfDeviceMemory(DriverError):
    """The device has no more memory."""


class Stuck(DriverError):
    """The device didn't finish in time."""


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    """CUmemAllocationProp; HIP's has the same layout."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [
        ("src_x", _size), ("src_y", _size), ("src_type", ctypes.c_int), ("src_host", ctypes.c_void_p),
        ("src_device", _u64), ("src_array", ctypes.c_void_p), ("src_pitch", _size),
        ("dst_x", _size), ("dst_y", _size), ("dst_type", ctypes.c_int), ("dst_host", ctypes.c_void_p),
        ("dst_device", _u64), ("dst_array", ctypes.c_void_p), ("dst_pitch", _size),
        ("width", _size), ("height", _size),
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DeviceInfo:
    """A device as its driver names it."""

    kind: str
    index: int
    name: str
    pci: str
    uuid: str
    version: int
    exclusive: bool
    exportable: bool
    l2_bytes: int = 0

    @property
    def flush_bytes(self) -> int:
        """How much must be written to push everything else out of the device's caches; 0 if they aren't known."""
        if self.l2_bytes <= 0:
            return 0
        return max(FLUSH_TIMES * self.l2_bytes, 0 if self.kind == "cuda" else HIP_FLUSH)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Device memory, mapped here. `handle` is 0 if it isn't ours to release."""

    at: int
    size: int
    handle: int


class Driver:
    """One of the two libraries, loaded and initialised. This creates no context."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._library = _loaded(kind)
        for name, kinds in _ADDRESSES.items():
            if (function := getattr(self._library, self._named(name), None)) is not None:
                function.argtypes = kinds
        code = self._call("init", ctypes.c_uint(0), good=(0, NO_DEVICE))
        self.version = self._number("version")
        if kind == "cuda" and self.version < LEAST_CUDA:
            raise DriverTooOld(
                f"the driver supports CUDA {_dotted(self.version)}, but {_dotted(LEAST_CUDA)} is needed; update it"
            )
        found = ctypes.c_int(0)
        if code != NO_DEVICE:
            code = self._call("count", ctypes.byref(found), good=(0, NO_DEVICE))
        if code == NO_DEVICE or found.value == 0:
            raise NoDevice(f"the {kind.upper()} driver is installed but shows no device; is one allocated to this job?")
        self.devices = [self._facts(n) for n in range(found.value)]

    def _named(self, name: str) -> str:
        return NAMES[name][0 if self.kind == "cuda" else 1]

    def _call(self, name: str, *args: object, good: Sequence[int] = (0,)) -> int:
        symbol = self._named(name)
        try:
            code = int(getattr(self._library, symbol)(*args))
        except AttributeError:
            raise DriverTooOld(f"the GPU's driver has no {symbol}; update it") from None
        if code in good:
            return code
        if code == NO_MEMORY:
            raise OutOfDeviceMemory(f"the device is out of memory ({symbol})", code)
        raise DriverError(f"the GPU's driver refused {symbol} with error {code}", code)

    def _number(self, name: str) -> int:
        found = ctypes.c_int(0)
        self._call(name, ctypes.byref(found))
        return found.value

    def _attribute(self, number: int, device: int) -> int:
        found = ctypes.c_int(0)
        self._call("attribute", ctypes.byref(found), ctypes.c_int(number), ctypes.c_int(device))
        return found.value

    def _facts(self, index: int) -> DeviceInfo:
        device, name, pci = ctypes.c_int(0), ctypes.create_string_buffer(256), ctypes.create_string_buffer(64)
        uuid = (ctypes.c_ubyte * 16)()
        self._call("get", ctypes.byref(device), ctypes.c_int(index))
        self._call("name", name, ctypes.c_int(len(name)), device)
        self._call("pci", pci, ctypes.c_int(len(pci)), device)
        self._call("uuid", ctypes.byref(uuid), device)
        mode = self._attribute(COMPUTE_MODE[self.kind], device.value)
        if mode == PROHIBITED:
            raise NoDevice("the device's compute mode prohibits its use")
        exportable = self.kind != "cuda" or self._attribute(EXPORTABLE, device.value) == 1
        return DeviceInfo(
            kind=self.kind,
            index=index,
            name=name.value.decode("utf-8", "replace"),
            pci=pci.value.decode("ascii", "replace").lower(),
            uuid=bytes(uuid).hex(),
            version=self.version,
            exclusive=mode == EXCLUSIVE,
            exportable=exportable,
            l2_bytes=self._attribute(L2_SIZE[self.kind], device.value),
        )

    def open(self, index: int = 0) -> Device:
        """The device's primary context in this thread: the same that torch and CUDA's runtime use."""
        return Device(self, self.devices[index])


class Device:
    """One device in use by this process."""

    def __init__(self, driver: Driver, facts: DeviceInfo) -> None:
        self._driver, self.facts = driver, facts
        self._call = driver._call
        handle = ctypes.c_int(0)
        self._call("get", ctypes.byref(handle), ctypes.c_int(facts.index))
        self._handle = handle.value
        self._context = ctypes.c_void_p()
        if facts.kind == "cuda":
            self._call("retain", ctypes.byref(self._context), ctypes.c_int(self._handle))
        self.enter()
        self._stream = ctypes.c_void_p()
        self._call("stream", ctypes.byref(self._stream), ctypes.c_uint(1))  # not ordered with the default stream
        self._done = self.event(timed=False)
        self._pinned = ctypes.c_void_p()
        flags = () if facts.kind == "cuda" else (ctypes.c_uint(0),)
        self._call("pin", ctypes.byref(self._pinned), _size(CHUNK), *flags)

    def enter(self) -> None:
        """Direct this thread's calls to this device."""
        library = self._driver._library
        if self.facts.kind == "cuda":
            code = library.cuCtxSetCurrent(self._context)
        else:
            code = library.hipSetDevice(ctypes.c_int(self._handle))
        if code != 0:
            raise DriverError(f"the device can't be used by this thread (error {code})", code)

    def close(self) -> None:
        """Release the context; the rest goes with the process."""
        with contextlib.suppress(DriverError):
            self._call("unpin", self._pinned)
            if self.facts.kind == "cuda":
                self._call("release_context", ctypes.c_int(self._handle))

    # ------------------------------------------------------------------------------------------------- memory

    def free_bytes(self) -> tuple[int, int]:
        """The device's free and total memory."""
        free, whole = _size(0), _size(0)
        self._call("memory", ctypes.byref(free), ctypes.byref(whole))
        return free.value, whole.value

    def allocate(self, size: int) -> Memory:
        """Memory for this process alone."""
        at = _u64(0)
        self._call("allocate", ctypes.byref(at), max(size, 1))
        return Memory(at=at.value, size=size, handle=0)

    def free(self, memory: Memory) -> None:
        """Give back what `allocate` or `share` gave."""
        if memory.handle == 0:
            self._call("free", memory.at)
            return
        self._call("unmap", memory.at, memory.size)
        self._call("unreserve", memory.at, memory.size)
        self._call("release", memory.handle)

    def _properties(self) -> _Properties:
        where = _Location(ON_DEVICE, self._handle)
        return _Properties(type=PINNED, handle_types=FILE_DESCRIPTOR, location=where)

    def share(self, size: int) -> tuple[Memory, int]:
        """At least so much memory that another process may map as well, and the file descriptor that lets it."""
        told = self._properties()
        step = _size(0)
        self._call("granularity", ctypes.byref(step), ctypes.byref(told), ctypes.c_int(0))
        whole = max(1, -(-size // step.value)) * step.value
        handle = _u64(0)
        self._call("create", ctypes.byref(handle), whole, ctypes.byref(told), 0)
        try:
            memory = self._mapped(handle.value, whole)
        except DriverError:
            self._call("release", handle.value)
            raise
        fd = ctypes.c_int(-1)
        try:
            self._call("export", ctypes.byref(fd), handle.value, FILE_DESCRIPTOR, 0)
        except DriverError:
            self.free(memory)
            raise
        return memory, fd.value

    def imported(self, fd: int, size: int) -> Memory:
        """The memory behind this descriptor, mapped here as well."""
        handle, held = _u64(0), ctypes.c_int(fd)
        by_value = self.facts.kind == "cuda" or self.facts.version >= HIP_BY_VALUE
        told = ctypes.c_void_p(fd) if by_value else ctypes.cast(ctypes.byref(held), ctypes.c_void_p)
        self._call("import", ctypes.byref(handle), told, FILE_DESCRIPTOR)
        return self._mapped(handle.value, size)

    def _mapped(self, handle: int, size: int) -> Memory:
        at = _u64(0)
        self._call("reserve", ctypes.byref(at), size, 0, 0, 0)
        try:
            self._call("map", at.value, size, 0, handle, 0)
            access = _Access(_Location(ON_DEVICE, self._handle), READ_WRITE)
            self._call("access", at.value, size, ctypes.byref(access), 1)
        except DriverError:
            with contextlib.suppress(DriverError):
                self._call("unreserve", at.value, size)
            raise
        return Memory(at=at.value, size=size, handle=handle)

    # ------------------------------------------------------------------------------------------------- copies

    def finish(self, limit_s: float = LIMIT_S) -> None:
        """Wait until everything queued here is done; Stuck if it takes too long."""
        self._call("record", self._done, self._stream)
        deadline = 0.0
        while self._call("query", self._done, good=(0, NOT_READY)) == NOT_READY:
            now = time.monotonic()
            deadline = deadline or now + limit_s
            if now > deadline:
                raise Stuck(f"the device didn't finish a copy within {limit_s:g} s")

    def write(self, at: int, data: bytes | bytearray | memoryview) -> None:
        """Copy host bytes to this address."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), CHUNK):
            part = bytes(view[start : start + CHUNK])
            ctypes.memmove(self._pinned, part, len(part))
            self._call("to_device", at + start, self._pinned, len(part), self._stream)
            self.finish()

    def read(self, at: int, size: int) -> bytes:
        """The bytes at this address."""
        parts = []
        for start in range(0, size, CHUNK):
            count = min(CHUNK, size - start)
            self._call("to_host", self._pinned, at + start, count, self._stream)
            self.finish()
            parts.append(ctypes.string_at(self._pinned, count))
        return b"".join(parts)

    def copy(self, to: int, source: int, size: int) -> None:
        """Copy within the device; done when this returns."""
        if size:
            self._call("within", to, source, size, self._stream)
            self.finish()

    def copy_all(self, parts: Sequence[tuple[int, int, int]]) -> None:
        """The same of several: to where, from where, how much."""
        for to, source, size in parts:
            if size:
                self._call("within", to, source, size, self._stream)
        self.finish()

    def cover(self, at: int, block: bytes, size: int) -> None:
        """Fill this many bytes with copies of the block."""
        held = min(len(block), size)
        self.write(at, block[:held])
        while held < size:
            more = min(held, size - held)
            self._call("within", at + held, at, more, self._stream)
            self.finish()
            held += more

    def flush(self, scratch: Memory, value: int) -> None:
        """Write all of this memory, which is larger than the caches: nothing else is in them when this returns.

        Lines that were marked as persisting would stay, so they are made ordinary ones first, as far as this context
        may do that.
        """
        if self.facts.kind == "cuda":
            self._call("unpersist", good=(0, NOT_SUPPORTED))
        self._call("fill", scratch.at, value & 0xFF, scratch.size, self._stream)
        self.finish()

    def gather(self, at: int, pitch: int, width: int, rows: int) -> bytes:
        """`width` bytes at this address and at each of the next ones, `pitch` apart, by one command."""
        if rows == 1:
            return self.read(at, width)
        if self.facts.kind == "cuda":
            told = _Copy2D(
                src_type=DEVICE_MEMORY, src_device=at, src_pitch=pitch, dst_type=HOST_MEMORY, dst_host=self._pinned,
                dst_pitch=width, width=width, height=rows,
            )  # fmt: skip
            self._call("gather", ctypes.byref(told), self._stream)
        else:
            sizes = (_size(width), ctypes.c_void_p(at), _size(pitch), _size(width), _size(rows))
            self._call("gather", self._pinned, *sizes, ctypes.c_int(DEVICE_TO_HOST), self._stream)
        self.finish()
        return ctypes.string_at(self._pinned, width * rows)

    def touch(self, at: int) -> int:
        """How long the smallest piece of work takes, in nanoseconds: long if others keep the device busy."""
        began = time.perf_counter_ns()
        self._call("fill", at, 0, 4, self._stream)
        self.finish()
        return time.perf_counter_ns() - began

    # ------------------------------------------------------------------------------------------------- events

    def event(self, *, timed: bool = True) -> ctypes.c_void_p:
        """A fresh event."""
        found = ctypes.c_void_p()
        self._call("event", ctypes.byref(found), ctypes.c_uint(0 if timed else 2))
        return found

    def record(self, event: ctypes.c_void_p) -> None:
        """Record the event in the default stream."""
        self._call("record", event, None)

    def elapsed_ns(self, first: ctypes.c_void_p, last: ctypes.c_void_p) -> int:
        """The time between two recorded events, by the device's clock."""
        found = ctypes.c_float(0)
        self._call("event_synchronize", last)
        self._call("elapsed", ctypes.byref(found), first, last)
        return int(found.value * 1e6)

    def synchronize(self) -> None:
        """Wait until all streams of this process's context are done."""
        self._call("synchronize")


def _loaded(kind: str) -> ctypes.CDLL:
    for name in _LIBRARIES[kind]:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    raise NoDriver(f"this machine has no {_LIBRARIES[kind][0]}, the library of a GPU driver ({kind.upper()})")


def found() -> Driver:
    """The driver of this machine: CUDA's, or else HIP's. NoDriver without any; another DriverError says what is
    wrong with the one that is there."""
    try:
        return Driver("cuda")
    except NoDriver:
        pass
    try:
        return Driver("hip")
    except NoDriver:
        raise NoDriver("no GPU driver is installed: this machine has neither libcuda.so.1 nor libamdhip64.so") from None


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
