"""An average copy, a weight average, tied weights, outputs in a dict and a rollback of weights."""

import copy

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> dict[str, Tensor | list[Tensor]]:
        hidden = self.norm(self.embed(tokens))
        return {"logits": self.head(hidden), "hidden": [hidden, hidden.detach()]}


torch.manual_seed(0)
model = Tied()
average = copy.deepcopy(model)
swa = AveragedModel(model, use_buffers=True)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
best = copy.deepcopy(model.state_dict())
for step in range(5):
    tokens = torch.randint(11, (9,))
    output = model(tokens)
    with torch.no_grad():
        teacher = average(tokens)["logits"].softmax(-1)
    loss = nn.functional.cross_entropy(output["logits"], teacher) + output["hidden"][0].std()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    swa.update_parameters(model)
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, 0.1)
    if step == 2:
        model.load_state_dict(best)
    print(step, loss.item(), swa(tokens)["logits"].sum().item())
