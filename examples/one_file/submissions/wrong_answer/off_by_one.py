# Leaves each value out of its own sum.


def custom_kernel(data):
    total, out = 0, []
    for value in data:
        out.append(total)
        total += value
    return out
