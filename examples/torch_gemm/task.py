"""The types of this problem. Submissions may import them."""

import torch

input_t = tuple[torch.Tensor, torch.Tensor]
output_t = torch.Tensor
