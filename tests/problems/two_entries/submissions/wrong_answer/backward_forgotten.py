def forward(x):
    return [3 * v * v for v in x]


def backward(x, grad):
    return grad
