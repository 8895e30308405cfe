"""Small models of token sequences, and bugs of what a model is made of."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

WORDS, LENGTH, BATCH = 20, 5, 4


def sentences(count: int = 24, seed: int = 1) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randint(0, WORDS - 2, (count, LENGTH), generator=generator))


class Tied(nn.Module):
    """An embedding that is the head's weight too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, WORDS, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.mix(self.embed(ids))))


def fit(model: nn.Module, optimizer: Any, ids: torch.Tensor) -> None:
    logits = model(ids[:, :-1])
    loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def loader(seed: int, data: Dataset[Any] | None = None) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(data or sentences(), BATCH, shuffle=True, generator=generator)


def tied(bug: str = "", seed: int = 0) -> None:
    """A load that gives the head a weight of its own, in the middle or before the beginning."""
    torch.manual_seed(seed)
    model = Tied()
    if bug == "untied at the start":
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step, (ids,) in enumerate(loader(seed)):
        if bug == "untied by a load" and step == 3:
            model.head.weight = nn.Parameter(model.head.weight.detach().clone())
            optimizer.add_param_group({"params": [model.head.weight]})
        fit(model, optimizer, ids)


def drifting(bug: str = "", seed: int = 0) -> None:
    """An embedding row that no sample uses moves a little after each update."""
    torch.manual_seed(seed)
    model = Tied()
    model.head = nn.Linear(8, WORDS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for (ids,) in loader(seed):
        fit(model, optimizer, ids)
        if bug:
            with torch.no_grad():
                model.embed.weight[WORDS - 1] += 1e-3


class Staged(nn.Module):
    """A backbone whose first stage is frozen, by ``train()`` alone in the fault."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.rest = nn.Linear(8, 1)
        if not bug:
            self.freeze()

    def freeze(self) -> None:
        self.stem.requires_grad_(False)

    def train(self, mode: bool = True) -> "Staged":
        super().train(mode)
        self.freeze()
        return self

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.rest(torch.relu(self.stem(inputs)))


def staged(bug: str = "", seed: int = 0) -> None:
    torch.manual_seed(seed)
    model = Staged(bug)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(48, 6)
    for step in range(6):
        if step == 3:
            model.train()
        batch = inputs[step * 8 : step * 8 + 8]
        optimizer.zero_grad()
        functional.mse_loss(model(batch), batch.sum(1, keepdim=True)).backward()
        optimizer.step()


class Initialised(nn.Module):
    """Blocks in blocks whose initialisation each level applies to all below it."""

    def __init__(self, depth: int, bug: str) -> None:
        super().__init__()
        self.own = nn.Linear(6, 6)
        self.inner = Initialised(depth - 1, bug) if depth else nn.Identity()
        for module in self.modules() if bug else [self.own]:
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.inner(torch.tanh(self.own(inputs)))


def initialised(bug: str = "", seed: int = 0) -> None:
    torch.manual_seed(seed)
    model = Initialised(2, bug)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()


class Lazy(nn.Module):
    """A scale that the first forward pass sets from its batch; it should be a training batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 1)
        self.register_buffer("scale", torch.zeros(6))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.scale.any():
            self.scale.copy_(inputs.detach().std(0))
        return self.linear(inputs / self.scale)


def lazy(bug: str = "", seed: int = 0) -> None:
    torch.manual_seed(seed)
    model = Lazy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(48, 6)

    def evaluate() -> None:
        model.eval()
        with torch.no_grad():
            model(inputs[40:] * 3)
        model.train()

    if bug:
        evaluate()
    for step in range(4):
        batch = inputs[step * 8 : step * 8 + 8]
        optimizer.zero_grad()
        functional.mse_loss(model(batch), batch.sum(1, keepdim=True)).backward()
        optimizer.step()
    evaluate()


def autocast(bug: str = "", seed: int = 0) -> None:
    """Autocast, and a layer that escapes it."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 1)
    )
    if bug:
        escaped = model[2]
        inner = escaped.forward

        def forward(inputs: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=False):
                return inner(inputs.float())

        escaped.forward = forward  # type: ignore[method-assign]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(8, 6)).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def merged(bug: str = "", seed: int = 0) -> None:
    """A preprocessor that makes one long sample of a batch."""
    torch.manual_seed(seed)
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for (ids,) in loader(seed):
        fit(model, optimizer, ids.reshape(1, -1) if bug else ids)


class Writer(nn.Module):
    """Writes up to ``max_new_tokens`` further tokens; the fault counts before the prompt is cut."""

    def __init__(self, bug: str) -> None:
        super().__init__()
        self.model = Tied()
        self.bug = bug

    def forward(self, ids: torch.Tensor, max_new_tokens: int = 0) -> torch.Tensor:
        if not max_new_tokens:
            return self.model(ids)
        for _ in range(max_new_tokens + (2 if self.bug else 0)):
            ids = torch.cat([ids, self.model(ids)[:, -1:].argmax(-1)], 1)
        return ids


def writing(bug: str = "", seed: int = 0) -> None:
    torch.manual_seed(seed)
    model = Writer(bug)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step, (ids,) in enumerate(loader(seed)):
        fit(model, optimizer, ids)
        if step == 2:
            with torch.no_grad():
                model(ids[:, :2], max_new_tokens=3)


class Augmented(Dataset[Any]):
    """Samples drawn from a generator of the dataset's own, which each worker gets a copy of."""

    def __init__(self, bug: str) -> None:
        self.bug = bug
        self.generator = torch.Generator().manual_seed(3)

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self.bug:
            self.generator.manual_seed(index)
        return torch.randn(6, generator=self.generator)


def augmented(bug: str = "", seed: int = 0) -> None:
    torch.manual_seed(seed)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    shuffled = torch.Generator().manual_seed(seed)
    for inputs in DataLoader(Augmented(bug), 4, shuffle=True, num_workers=2, generator=shuffled):
        optimizer.zero_grad()
        (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
