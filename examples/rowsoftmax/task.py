"""The types of this problem. Submissions may import them."""

input_t = tuple[int, int, list[float]]
output_t = list[float]
