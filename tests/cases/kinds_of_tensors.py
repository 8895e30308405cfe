"""A training whose modules hand on a tensor of every kind; the argument says how far it moved."""

import warnings
from typing import Any

import torch
from torch import nn

MOVED = {"same": 0.0, "near": 1e-4, "far": 0.5}
INEXACT = {
    "double": lambda x: x.double(),
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "e4m3": lambda x: x.to(torch.float8_e4m3fn),
    "e5m2": lambda x: x.to(torch.float8_e5m2),
    "e4m3fnuz": lambda x: x.to(torch.float8_e4m3fnuz),
    "e8m0": lambda x: x.to(torch.float8_e8m0fnu),
    "complex32": lambda x: torch.complex(x, x).to(torch.complex32),
    "complex64": lambda x: torch.complex(x, x + 1),
    "complex128": lambda x: torch.complex(x, x + 1).to(torch.complex128),
    "conjugate": lambda x: torch.view_as_complex(x.reshape(4, 3, 2)).conj(),
    "transposed": lambda x: x.t(),
    "single": lambda x: x[0, 0],
    "coo": lambda x: torch.sparse_coo_tensor([[0, 4, 2]], x[0, :3], (5,)),
    "hybrid": lambda x: torch.sparse_coo_tensor([[3, 0]], x[:2], (100, 6)),
    "csr": lambda x: x.to_sparse_csr(),
    "list": lambda x: [x, {"a": x[0], "b": (x[1], None, 3.0)}],
    "infinite": lambda x: torch.where(x > 3, torch.inf, x),
}
WHOLE = {
    "int64": lambda x: (x * 10_000).long(),
    "uint16": lambda x: (x * 10_000).to(torch.uint16),
    "bool": lambda x: x > 4,
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.001, 0, torch.qint32),
    "channels": lambda x: torch.quantize_per_channel(
        x, torch.full((4,), 0.001), torch.zeros(4).long(), 0, torch.qint32
    ),
}
ALIKE = {
    "empty": lambda x: x[:0],
    "none": lambda x: [],
}
BY_BITS = {
    "nested": lambda x: torch.nested.nested_tensor([x[0], x[1, :3]]),
    "scale": lambda x: torch.quantize_per_tensor(x - x, float(x[0, 0]), 0, torch.qint32),
}
KINDS = {**INEXACT, **WHOLE, **ALIKE, **BY_BITS}


class Hand(nn.Module):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.held = [value]

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.held[0]


class Model(nn.Module):
    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.kinds = nn.ModuleDict({f"a_{name}": Hand(make(value)) for name, make in KINDS.items()})
        self.head = nn.Linear(6, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for hand in self.kinds.values():
            hand(inputs)
        return self.head(inputs)


def train(variant: str) -> None:
    """Two updates; what the modules hand on is moved by a relative distance."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    value = torch.rand(4, 6) + 2.5
    model = Model(value * (1 + MOVED[variant]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(value).sum().backward()
        optimizer.step()
