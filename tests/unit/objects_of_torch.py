"""Run by a Python that has torch: its values arrive at the runner as they were. Prints what doesn't."""

from __future__ import annotations

import collections
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "eval"))

import torch

from kbslurm_eval.shared.values import copied, pack


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.width = 3
        self.first = torch.nn.Linear(4, 3)
        self.rest = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.BatchNorm1d(3))
        self.register_buffer("scale", torch.full((3,), 2.0), persistent=False)
        self.fixed = torch.nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.first(x)) * self.scale + self.fixed


def check(said: str, good: bool) -> None:
    if not good:
        sys.exit(f"doesn't arrive: {said}")


for value in (torch.bfloat16, torch.device("cuda:1"), torch.device("cpu"), torch.Size([2, 3])):
    found = copied(pack({"a": value}))["a"]
    check(repr(value), found == value and type(found) is type(value))
dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
blocked = dense.to_sparse_bsr((1, 1)), dense.to_sparse_bsc((1, 1))
for sparse in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(), *blocked):
    found = copied(pack([sparse]))[0]
    check(str(sparse.layout), found.layout == sparse.layout and torch.equal(found.to_dense(), dense))
net = Net().eval()
x = torch.randn(5, 4)
found = copied(pack(net))
check("a module's class", type(found) is Net and found.width == 3 and not found.training)
check("a module's answer", torch.equal(found(x), net(x)))
check("what needs a gradient", found.first.weight.requires_grad and not found.fixed.requires_grad)
check("a module's state", list(found.state_dict()) == list(net.state_dict()))
state = copied(pack(net.state_dict()))
check("a state dict", type(state) is collections.OrderedDict)
other = Net().eval()
other.load_state_dict(state)
check("a state dict's values", torch.equal(other(x), net(x)))
wide = torch.arange(48.0).reshape(6, 8)
for view in (
    wide[:, ::2],
    wide.t()[::3],
    wide[0].expand(5, 8),
    wide[0].unfold(0, 3, 1),
    wide[1:4, 2:5].bfloat16()[:, :2],
):
    found = copied(pack([view]))[0]
    check(f"strides {view.stride()}", found.stride() == view.stride() and torch.equal(found, view))
q, k, again, bits = copied(pack([wide[:, :4], wide[:, 4:], wide, wide.view(torch.int32)]))
check(
    "one storage",
    q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr() == again.untyped_storage().data_ptr(),
)
k[0, 0] = -5.0
check("what is written is seen", again[0, 4] == -5.0 and bits[0, 4] == torch.tensor(-5.0).view(torch.int32))
tied = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
tied[1].weight = tied[0].weight
found = copied(pack(tied))
with torch.no_grad():
    found[0].weight[0, 0] = 9.0
check("tied weights", found[1].weight[0, 0] == 9.0)
print("all arrive")
