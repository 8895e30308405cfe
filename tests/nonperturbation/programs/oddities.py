"""Modules that hooks trip over: lazy, parametrised, functional, scripted, hostile attributes."""

import dataclasses

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap


@dataclasses.dataclass
class Output:
    logits: Tensor
    extra: object


class Odd(nn.Module):
    __hash__ = nn.Module.__hash__

    def __init__(self) -> None:
        super().__init__()
        self.lazy = nn.LazyLinear(5)
        self.weighted = nn.utils.parametrizations.weight_norm(nn.Linear(5, 5))
        self.rnn = nn.GRU(5, 4, batch_first=True)
        self.scale = nn.Parameter(torch.ones(()))
        self.never = nn.Parameter(torch.ones(2))

    def __eq__(self, other: object) -> bool:
        raise TypeError("not comparable")

    @property
    def broken(self) -> int:
        raise RuntimeError("do not read this")

    def forward(self, x: Tensor, *, flag: bool = True) -> Output:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.weighted(self.lazy(x)), torch.tensor([3, 2]), batch_first=True
        )
        out, hidden = self.rnn(packed)
        return Output(nn.utils.rnn.unpack_sequence(out)[0] * self.scale, (hidden, flag, iter("ab")))


torch.manual_seed(0)
model = Odd()
model(torch.randn(2, 3, 7))
helper = nn.Linear(4, 1)
scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
optimizer = torch.optim.AdamW([*model.parameters(), *helper.parameters(), *scripted.parameters()])
optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))], "lr": 0.5})
for step in range(3):
    output = model(torch.randn(2, 3, 7), flag=step > 1)
    loss = helper(scripted(output.logits)).sum() + next(iter(output.extra[0])).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    weights = {name: p.detach() for name, p in helper.named_parameters()}
    single = grad(lambda w, row: functional_call(helper, w, (row,)).sum())
    per_sample = vmap(single, (None, 0))(weights, torch.randn(3, 4))
    print(step, loss.item(), per_sample["weight"].sum().item())
