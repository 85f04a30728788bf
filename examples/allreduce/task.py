"""The types that submissions are written with."""

input_t = tuple[int, int, list[int]]
output_t = list[int]
