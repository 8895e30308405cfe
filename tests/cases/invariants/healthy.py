"""Sound programs that look odd: what each does would be a bug elsewhere.

Each takes the folder in which it may write.
"""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch
from loops import BATCH, Network, evaluate, rows
from sequences import WORDS, Tied, fit, loader
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader


def shuffled(seed: int = 0, count: int = 48, **options: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(rows(count), BATCH, shuffle=True, generator=generator, **options)


def learn(model: nn.Module, optimizer: Any, inputs: Any, targets: Any) -> None:
    loss = functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def adversaries(folder: str) -> None:
    """A critic of which five updates see batches of their own, its weights kept in a range."""
    torch.manual_seed(4)
    maker, critic = nn.Linear(3, 6), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    first = torch.optim.RMSprop(critic.parameters(), lr=1e-2)
    second = torch.optim.RMSprop(maker.parameters(), lr=1e-2)
    for number, (inputs, _) in enumerate(itertools.chain(shuffled(), shuffled(1))):
        fake = maker(torch.randn(len(inputs), 3)).detach()
        first.zero_grad()
        (critic(fake).mean() - critic(inputs).mean()).backward()
        first.step()
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.clamp_(-0.1, 0.1)
        if number % 3 == 2:
            second.zero_grad()
            (-critic(maker(torch.randn(len(inputs), 3))).mean()).backward()
            second.step()


def adversaries_turn_by_turn(folder: str) -> None:
    """Gradients gather in the critic while the maker learns; its own turn begins without."""
    torch.manual_seed(4)
    maker, critic = nn.Linear(3, 6), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    first = torch.optim.Adam(critic.parameters(), lr=1e-2, betas=(0.5, 0.99))
    second = torch.optim.Adam(maker.parameters(), lr=1e-2, betas=(0.5, 0.99))
    for inputs, _ in shuffled():
        noise = torch.randn(len(inputs), 3)
        critic.zero_grad()
        functional.softplus(-critic(inputs)).mean().backward()
        functional.softplus(critic(maker(noise).detach())).mean().backward()
        first.step()
        maker.zero_grad()
        functional.softplus(-critic(maker(noise))).mean().backward()
        second.step()


def frozen_backbone(folder: str) -> None:
    """A backbone that is frozen and in eval mode, under an optimizer that holds all."""
    torch.manual_seed(0)
    model = Network()
    model.body.requires_grad_(False)
    model.norm.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    for inputs, targets in itertools.chain(shuffled(), shuffled(1)):
        model.train()
        model.norm.eval()
        learn(model, optimizer, inputs, targets)


def thawed(folder: str) -> None:
    """Layers that are thawed one after the other, each with a group of its own from then on."""
    torch.manual_seed(0)
    model = Network()
    model.body.requires_grad_(False)
    optimizer = torch.optim.SGD([*model.norm.parameters(), *model.head.parameters()], lr=0.05)
    for step, (inputs, targets) in enumerate(shuffled()):
        if step == 3:
            model.body.requires_grad_(True)
            optimizer.add_param_group({"params": [*model.body.parameters()], "lr": 0.01})
        learn(model, optimizer, inputs, targets)


def adapters(folder: str) -> None:
    """A frozen model that stays in eval mode around a trained adapter."""
    torch.manual_seed(0)
    model = Network().requires_grad_(False).eval()
    adapter = nn.Linear(12, 12)
    model.drop = nn.Sequential(adapter, nn.Dropout(0.1))
    optimizer = torch.optim.AdamW(adapter.parameters(), lr=1e-2)
    for inputs, targets in shuffled():
        model.drop.train()
        learn(model, optimizer, inputs, targets)


def average(folder: str) -> None:
    """An average that is swapped in for evaluation and out again."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    kept = copy.deepcopy(model.state_dict())
    for epoch in range(3):
        for inputs, targets in shuffled(epoch):
            learn(model, optimizer, inputs, targets)
            for name, value in model.state_dict().items():
                if value.is_floating_point():
                    kept[name].mul_(0.9).add_(value, alpha=0.1)
        own = copy.deepcopy(model.state_dict())
        model.load_state_dict(kept)
        evaluate(model)
        model.load_state_dict(own)
        model.train()


def accumulation(folder: str) -> None:
    """Windows of three micro-batches, the last one of each epoch shorter."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        batches = shuffled(epoch, 56)
        for number, (inputs, targets) in enumerate(batches, 1):
            (functional.mse_loss(model(inputs), targets) / 3).backward()
            if number % 3 == 0 or number == len(batches):
                optimizer.step()
                optimizer.zero_grad()


def left_over(folder: str) -> None:
    """Accumulation whose last window is never finished."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for number, (inputs, targets) in enumerate(shuffled(0, 64), 1):
        (functional.mse_loss(model(inputs), targets) / 3).backward()
        if number % 3 == 0:
            optimizer.step()
            model.zero_grad(set_to_none=False)


def tied(folder: str) -> None:
    """Tied weights, initialised as both of their owners are."""
    torch.manual_seed(0)
    model = Tied()
    model.apply(
        lambda module: hasattr(module, "weight") and nn.init.normal_(module.weight, std=0.1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for (ids,) in loader(0):
        fit(model, optimizer, ids)


def cloned(folder: str) -> None:
    """Encoder layers that begin as copies of one another, and dropout in them."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(4):
        inputs = torch.randn(4, 5, 8)
        learn(model, optimizer, inputs, inputs.flip(1))


def truncated(folder: str) -> None:
    """Backpropagation through time, cut after each piece; hidden state goes on."""
    torch.manual_seed(0)
    model = nn.RNN(3, 5, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    sequence = torch.randn(2, 24, 3)
    hidden = None
    for start in range(0, 24, 4):
        output, hidden = model(sequence[:, start : start + 4], hidden)
        optimizer.zero_grad()
        output.square().mean().backward()
        optimizer.step()
        hidden = hidden.detach()


def unused(folder: str) -> None:
    """Parts that some steps use, and one that none does."""
    torch.manual_seed(0)

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(6, 8)
            self.left, self.right, self.never = (nn.Linear(8, 1) for _ in range(3))

        def forward(self, inputs: torch.Tensor, left: bool) -> torch.Tensor:
            value = torch.tanh(self.stem(inputs))
            return self.left(value) if left else self.right(value)

    model = Branches()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step, (inputs, targets) in enumerate(shuffled()):
        loss = functional.mse_loss(model(inputs, step % 3 != 1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def evaluated_in_between(folder: str) -> None:
    """Evaluation in the middle of an epoch and random draws in its forward pass."""
    torch.manual_seed(0)

    class Sampling(Network):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return super().forward(inputs + 0.01 * torch.randn_like(inputs))

    model = Sampling()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    slower = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for step, (inputs, targets) in enumerate(itertools.chain(shuffled(), shuffled(1))):
        learn(model, optimizer, inputs, targets)
        if step % 4 == 3:
            slower.step(evaluate(model))
            model.train()


def mode_set_in_the_closure(folder: str) -> None:
    """A step begins as the evaluation left the model; the optimizer's closure sets the mode."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for inputs, targets in itertools.chain(shuffled(), shuffled(1)):

        def closure(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> torch.Tensor:
            model.train()
            optimizer.zero_grad()
            loss = functional.mse_loss(model(inputs), targets)
            loss.backward()
            return loss

        optimizer.step(closure)
        evaluate(model)


def student(folder: str) -> None:
    """A teacher in each step, and a target network that follows after every third one."""
    torch.manual_seed(0)
    model, target = Network(), Network().eval()
    target.load_state_dict(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step, (inputs, targets) in enumerate(shuffled()):
        with torch.no_grad():
            wanted = 0.5 * target(inputs) + 0.5 * targets
        learn(model, optimizer, inputs, wanted)
        if step % 3 == 2:
            target.load_state_dict(model.state_dict())


def renormalised(folder: str) -> None:
    """An embedding whose forward pass keeps its rows in a range, in evaluations too."""
    torch.manual_seed(0)
    model = Tied()
    model.embed = nn.Embedding(WORDS, 8, max_norm=0.5)
    model.head = nn.Linear(8, WORDS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step, (ids,) in enumerate(loader(0)):
        fit(model, optimizer, ids)
        if step == 3:
            with torch.no_grad():
                model(torch.arange(WORDS)[None])


PROGRAMS: tuple[Callable[[str], None], ...] = (
    accumulation, adapters, adversaries, adversaries_turn_by_turn, average, cloned,
    evaluated_in_between, frozen_backbone, left_over, mode_set_in_the_closure, renormalised,
    student, thawed, tied, truncated, unused,
)  # fmt: skip
