# ruff: noqa
# mypy: ignore-errors
# does: native code
import ctypes

LIBC = ctypes.CDLL(None)
CMP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_double))
ORDER = CMP(lambda a, b: (a[0] > b[0]) - (a[0] < b[0]))


def custom_kernel(data):
    made = (ctypes.c_double * len(data))(*data)
    LIBC.qsort(made, len(data), 8, ORDER)
    return list(made)
