def forward(x):
    return [3 * v * v for v in x]
