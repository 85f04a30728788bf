import torch


def shifted(x, by=1.0):
    return x + by


##################################################################################################################################################


import math

from shifted import (
    shifted,
)


def test_shifted():
    results = {}
    x = torch.randn(8, device="cuda")
    results["test_case_1"] = shifted(x)
    results["test_case_2"] = shifted(x, by=2.5 * math.cos(0.0))
    return results


test_results = test_shifted()
