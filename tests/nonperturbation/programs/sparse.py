"""Sparse gradients, quantized and nested tensors, unsigned integers: what is no block of memory."""

import warnings

import torch
from torch import Tensor, nn

warnings.simplefilter("ignore")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, 6, sparse=True)
        self.bag = nn.EmbeddingBag(30, 6, sparse=True, mode="sum")
        self.kinds = Kinds()
        self.head = nn.Linear(6, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        value = self.table(tokens).mean(1) + self.bag(tokens)
        self.kinds(value)
        return self.head(value)


class Kinds(nn.Module):
    def forward(self, value: Tensor) -> dict[str, Tensor]:
        detached = value.detach()
        return {
            "coo": detached.to_sparse(),
            "csr": detached.to_sparse_csr(),
            "quantized": torch.quantize_per_tensor(detached, 0.1, 0, torch.qint8),
            "nested": torch.nested.nested_tensor([detached[0], detached[1, :2]]),
            "unsigned": (detached.abs() * 1000).to(torch.uint16),
        }


torch.manual_seed(0)
model = Model()
tables = torch.optim.SparseAdam([*model.table.parameters(), *model.bag.parameters()], lr=1e-2)
rest = torch.optim.SGD(model.head.parameters(), lr=0.1)
for step in range(4):
    tokens = torch.randint(30, (5, 4))
    loss = model(tokens).square().mean()
    for optimizer in (tables, rest):
        optimizer.zero_grad()
    loss.backward()
    for optimizer in (tables, rest):
        optimizer.step()
    print(step, loss.item(), model.table.weight.grad.is_coalesced())
