"""The types of this problem. Submissions may import them."""

input_t = tuple[int, int, bytes]
output_t = bytes
