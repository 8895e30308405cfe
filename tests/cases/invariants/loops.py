"""One supervised training, three epochs of six batches, and the bugs that its loop can have.

``train(bug, seed)`` is sound where ``bug`` is empty; any other word plants the bug of that name.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 3
SAMPLES, BATCH = 48, 8


def rows(count: int = SAMPLES, width: int = 6, seed: int = 1) -> TensorDataset:
    """Inputs and targets that one can learn."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, width, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())


class Network(nn.Module):
    """A body with all that depends on the mode, and a head; ``bug`` drops out functionally."""

    def __init__(self, bug: str = "", width: int = 6) -> None:
        super().__init__()
        self.body = nn.Linear(width, 12)
        self.norm = nn.BatchNorm1d(12)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(12, 1)
        self.bug = bug

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        value = torch.tanh(self.norm(self.body(inputs)))
        if self.bug == "dropout in evaluation":
            value = functional.dropout(value, 0.1)
        return self.head(self.drop(value))


@dataclass(slots=True)
class Parts:
    """What a loop works with."""

    model: nn.Module
    optimizer: Any
    scheduler: Any
    loader: DataLoader[Any]
    bug: str
    step: int = 0


def parts(bug: str, seed: int) -> Parts:
    torch.manual_seed(seed)
    model = Network(bug)
    if bug == "frozen":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name == "head.bias")
    held: Any = model.parameters()
    if bug == "optimizer on copies":
        held = [nn.Parameter(parameter.detach().clone()) for parameter in model.parameters()]
    rate = 1e-1 if bug == "rate ten times" else 1e-2
    optimizer = torch.optim.AdamW(held, lr=rate)
    loader = DataLoader(
        rows(), BATCH, shuffle=bug not in ("shuffle lost", "first batch again"),
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)
    return Parts(model, optimizer, scheduler, loader, bug)


def batches(part: Parts, epoch: int, seed: int) -> Iterator[Any]:
    if part.bug == "order frozen" and part.loader.generator is not None:
        part.loader.generator.manual_seed(seed)
    if part.bug == "first batch again":
        for _ in range(len(part.loader)):
            yield next(iter(part.loader))
    else:
        yield from part.loader


def update(part: Parts, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """One step of the training."""
    bug, model, optimizer = part.bug, part.model, part.optimizer
    loss = functional.mse_loss(model(inputs), targets)
    if bug == "loss detached":
        loss = loss.detach().requires_grad_()
    if bug != "zero_grad missing":
        optimizer.zero_grad()
    loss.backward()
    if bug == "cleared before the update":
        optimizer.zero_grad()
    if bug == "gradients lost" and part.step >= 4:
        # As a compiled graph does that was specialised on gradients that are there.
        for parameter in model.parameters():
            parameter.grad = None
    if bug != "step missing":
        optimizer.step()
    if bug == "rate per batch":
        part.scheduler.step()
    part.step += 1


def between(part: Parts) -> None:
    """What goes wrong between two updates."""
    if part.bug == "weight overwritten" and part.step == 7:
        with torch.no_grad():
            part.model.body.weight[1, 2] += 0.5


def evaluate(model: nn.Module) -> float:
    model.eval()
    held_out = DataLoader(rows(16, seed=2), batch_size=8, generator=torch.Generator())
    with torch.no_grad():
        return sum(functional.mse_loss(model(x), y).item() for x, y in held_out)


def train(bug: str = "", seed: int = 0) -> None:
    part = parts(bug, seed)
    for epoch in range(EPOCHS):
        if bug == "training in eval mode":
            part.model.eval()
        elif bug != "train not restored" or epoch == 0:
            part.model.train()
        for inputs, targets in batches(part, epoch, seed):
            update(part, inputs, targets)
            between(part)
        if bug not in ("rate per batch", "scheduler not stepped"):
            part.scheduler.step()
        if bug != "training in eval mode":
            evaluate(part.model)


def accumulate(bug: str = "", seed: int = 0, sound: str = "") -> None:
    """Windows of three micro-batches; ``sound`` names what does no harm."""
    torch.manual_seed(seed)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(
        rows(72), BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed)
    )
    number = 0
    for _ in range(2):
        for inputs, targets in loader:
            (functional.mse_loss(model(inputs), targets) / 3).backward()
            number += 1
            if sound == "evaluated in between" and number % 2:
                with torch.no_grad():
                    model.eval()(torch.zeros(5, 6))
                model.train()
            if (number - 1 if bug == "window off by one" else number) % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()


def scaled(bug: str = "", seed: int = 0) -> None:
    """A gradient scaler, and clipping that bites."""
    torch.manual_seed(seed)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    loader = DataLoader(rows(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed))
    for inputs, targets in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.mse_loss(model(inputs).float(), targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if bug != "clipped before unscaled":
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()


def halved(bug: str = "", seed: int = 0) -> None:
    """Half precision without a scaler; in the fault a step's outputs are beyond its range."""
    torch.manual_seed(seed)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(rows(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed))
    for step, (inputs, targets) in enumerate(loader):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(inputs)
        if bug and step == 3:
            output = (output * 200).exp().half() * 1e4
        loss = functional.mse_loss(output.float(), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def clipped(bug: str = "", seed: int = 0) -> None:
    """Clipping before the backward pass has no gradients to clip."""
    torch.manual_seed(seed)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(rows(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed))
    for inputs, targets in loader:
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad(set_to_none=False)
        if bug == "clipped too early":
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        loss.backward()
        if bug != "clipped too early":
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()


def replaced(bug: str = "", seed: int = 0) -> None:
    """The optimizer is made before the model's parameters are replaced by converted ones."""
    torch.manual_seed(seed)
    model: nn.Module = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    model = model.to(torch.float64)
    torch.__future__.set_overwrite_module_params_on_conversion(False)
    if not bug:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = rows()
    loader = DataLoader(data, BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed))
    for inputs, targets in loader:
        loss = functional.mse_loss(model(inputs.double()), targets.double())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class StuckSGD(torch.optim.SGD):
    """Updates copies of parameters that are not contiguous, as a kernel of a device did."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.contiguous().add_(parameter.grad, alpha=-group["lr"])
        return None


def transposed(bug: str = "", seed: int = 0) -> None:
    """An encoder whose weight is a transposed view; the faulty update never reaches it."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
    model[0].weight = nn.Parameter(model[0].weight.detach().t().contiguous().t())
    kind = StuckSGD if bug else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.05)
    loader = DataLoader(rows(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed))
    for inputs, targets in loader:
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def reloaded(bug: str = "", seed: int = 0) -> None:
    """A checkpoint is loaded in the middle; the fault leaves the optimizer's moments out."""
    torch.manual_seed(seed)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = DataLoader(rows(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(seed))
    for step, (inputs, targets) in enumerate([*loader, *loader]):
        if step == 8:
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            model.load_state_dict(saved[0])
            state = {**saved[1], "state": {}} if bug else saved[1]
            optimizer.load_state_dict(state)
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
