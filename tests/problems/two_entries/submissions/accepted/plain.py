def forward(x):
    return [3 * v * v for v in x]


def backward(x, grad):
    return [6 * v * g for v, g in zip(x, grad)]
