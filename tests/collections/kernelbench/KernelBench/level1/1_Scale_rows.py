import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Scales each column by a weight.
    """

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return x * self.weight


batch_size = 4096
width = height = 32 * 2


def get_inputs():
    return [torch.rand(batch_size, width)]


def get_init_inputs():
    return [width]
