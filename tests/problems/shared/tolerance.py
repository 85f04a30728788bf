"""Shared by problems that lie beside this folder."""


def close(a, b, *, rtol=1e-5):
    return abs(a - b) <= rtol * max(abs(a), abs(b)) + 1e-12
