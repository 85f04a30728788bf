"""Kernels for a board that shows something: correct ways to transpose an image, some of them slow. Nothing is made up:
each is submitted to the demo's service, and measured there."""

from __future__ import annotations

from collections.abc import Mapping

KERNELS: Mapping[str, str] = {
    "emil": """
    # A column is a slice with a stride.
    return b"".join([pixels[col::cols] for col in range(cols)])
""",
    "fatima": """
    # The same, written into one buffer.
    out = bytearray(rows * cols)
    for col in range(cols):
        out[col * rows : (col + 1) * rows] = pixels[col::cols]
    return bytes(out)
""",
    "grace": """
    # A view of the pixels, column by column.
    view = memoryview(pixels)
    return b"".join([bytes(view[col::cols]) for col in range(cols)])
""",
    "hiro": """
    # Rows, zipped.
    lines = [pixels[row * cols : (row + 1) * cols] for row in range(rows)]
    return b"".join(map(bytes, zip(*lines)))
""",
    "ines": """
    # One comprehension over places.
    return bytes([pixels[row * cols + col] for col in range(cols) for row in range(rows)])
""",
    "jun": """
    # A row becomes a column of the answer, as a slice with a stride.
    out = bytearray(rows * cols)
    for row in range(rows):
        out[row::rows] = pixels[row * cols : (row + 1) * cols]
    return bytes(out)
""",
    "karim": """
    # One place after another.
    size = rows * cols
    return bytes(map(pixels.__getitem__, [place for col in range(cols) for place in range(col, size, cols)]))
""",
    "lena": """
    # One pixel at a time.
    out = bytearray(rows * cols)
    for place, pixel in enumerate(pixels):
        row, col = divmod(place, cols)
        out[col * rows + row] = pixel
    return bytes(out)
""",
}


def source(person: str) -> bytes:
    """Their file."""
    return f"def custom_kernel(data):\n    rows, cols, pixels = data\n    {KERNELS[person].strip()}\n".encode()
