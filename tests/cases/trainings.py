"""Small trainings with a switch each: what two runs may differ in, harmless or not.

Each function trains something tiny; its argument is the variant. ``PAIRS`` names which two variants
are compared, how, and what must come out.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def rows(count: int = 32, width: int = 6, seed: int = 1) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, width, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())


def network(width: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 1))


def fit(
    model: nn.Module, optimizer: Any, loader: Any, after: Callable[[], None] | None = None
) -> None:
    for inputs, targets in loader:
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after is not None:
            after()


def evaluation(variant: str) -> None:
    """Evaluation after each epoch, with a loader of its own that draws nothing global."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(
        rows(), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3)
    )
    held_out = DataLoader(rows(16, seed=2), batch_size=8, generator=torch.Generator())
    for _ in range(2):
        fit(model, optimizer, loader)
        if variant == "evaluated":
            model.eval()
            with torch.no_grad():
                for inputs, targets in held_out:
                    functional.mse_loss(model(inputs), targets).item()
            model.train()


def hand_made_rate(variant: str) -> None:
    """A rate set by hand in each iteration, before the forward pass or after it."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step, (inputs, targets) in enumerate(DataLoader(rows(), batch_size=8)):
        if variant == "before":
            optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        if variant == "after":
            optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        optimizer.step()


def schedule(variant: str) -> None:
    """The same rates from schedulers of different classes, or other rates."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    make = {
        "step": lambda: torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5),
        "lambda": lambda: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5 ** (n // 2)),
        "longer": lambda: torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5),
    }
    fit(model, optimizer, DataLoader(rows(), batch_size=8), make[variant]().step)


def unused_head(variant: str) -> None:
    """A head that no loss ever reaches, drawn from a generator of its own."""
    model = network()
    if variant == "with":
        with torch.random.fork_rng():
            model.add_module("auxiliary", nn.Linear(12, 3))
        body = nn.Sequential(*list(model)[:4])
    else:
        body = model
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            value = inputs
            for module in body:
                value = module(value)
            return value

    fit(Whole(), optimizer, DataLoader(rows(), batch_size=8))


class Towers(nn.Module):
    def __init__(self, order: str) -> None:
        super().__init__()
        for name in order.split(","):
            torch.manual_seed(len(name))
            setattr(self, name, nn.Linear(3, 4))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        left, right = inputs[:, :3], inputs[:, 3:]
        if next(iter(self._modules)) == "query":
            query, item = self.query(left), self.item(right)
        else:
            item, query = self.item(right), self.query(left)
        return (query * item).sum(1, keepdim=True)


def towers(variant: str) -> None:
    """Two towers registered and called in one order or the other."""
    model = Towers(variant)
    fit(model, torch.optim.Adam(model.parameters(), lr=1e-2), DataLoader(rows(), batch_size=8))


def workers(variant: str) -> None:
    """No workers, or two."""
    model = network()
    loader = DataLoader(
        rows(), batch_size=8, shuffle=True, num_workers=int(variant),
        generator=torch.Generator().manual_seed(5),
    )  # fmt: skip
    fit(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)


def average(variant: str) -> None:
    """An average of the weights, kept by torch's own class, used for evaluation only."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    averaged = torch.optim.swa_utils.AveragedModel(model).eval() if variant == "averaged" else None

    def after() -> None:
        if averaged is not None:
            averaged.update_parameters(model)
            with torch.no_grad():
                averaged(torch.ones(2, 6))

    fit(model, optimizer, DataLoader(rows(), batch_size=8), after)


def adversaries(variant: str) -> None:
    """A generator and a discriminator with an optimizer each; the fault is in the second rate."""
    torch.manual_seed(4)
    maker, critic = nn.Linear(3, 6), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    first = torch.optim.Adam(critic.parameters(), lr=1e-2)
    second = torch.optim.Adam(maker.parameters(), lr=1e-2 if variant == "twin" else 2e-2)
    for inputs, _ in DataLoader(rows(), batch_size=8):
        noise = torch.randn(len(inputs), 3)
        real, fake = critic(inputs), critic(maker(noise).detach())
        loss = functional.softplus(-real).mean() + functional.softplus(fake).mean()
        first.zero_grad()
        loss.backward()
        first.step()
        second.zero_grad()
        functional.softplus(-critic(maker(noise))).mean().backward()
        second.step()


def teacher(variant: str) -> None:
    """A teacher without gradients inside each step; in the fault it is another one."""
    model, guide = network(), network()
    if variant == "other":
        with torch.no_grad():
            guide[0].weight[0, 0] += 0.25
    guide.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, _ in DataLoader(rows(), batch_size=8):
        with torch.no_grad():
            wanted = guide(inputs)
        loss = functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def closures(variant: str) -> None:
    """LBFGS: forward and backward inside the step."""
    model = network()
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.5 if variant == "twin" else 0.6, max_iter=3
    )
    for inputs, targets in DataLoader(rows(), batch_size=16):

        def closure(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> torch.Tensor:
            optimizer.zero_grad()
            loss = functional.mse_loss(model(inputs), targets)
            loss.backward()
            return loss

        optimizer.step(closure)


def clipping(variant: str) -> None:
    """Clipping with a limit that is never reached, or not at all, or one that is."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    limit = {"none": None, "loose": 1e9, "tight": 1e-3}[variant]
    for inputs, targets in DataLoader(rows(), batch_size=8):
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        if limit is not None:
            nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()


def no_loader(variant: str) -> None:
    """Tensors by hand; in the fault the second batch is another one."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = rows(40).tensors
    for step in range(4):
        at = step * 8 + (8 if variant == "shifted" and step == 2 else 0)
        loss = functional.mse_loss(model(inputs[at : at + 8]), targets[at : at + 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def keywords(variant: str) -> None:
    """A model that takes a dictionary of keyword arguments and returns one."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.embed = nn.Embedding(20, 8)
            self.head = nn.Linear(8, 20)

        def forward(self, *, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.head(self.embed(ids) * mask[..., None])}

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(6)
    data = [
        {"ids": torch.randint(0, 20, (5,), generator=generator), "mask": torch.ones(5)}
        for _ in range(16)
    ]
    if variant == "masked":
        data[9]["mask"][2] = 0
    for batch in DataLoader(data, batch_size=4):
        loss = functional.cross_entropy(
            model(**batch)["logits"].flatten(0, 1), batch["ids"].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def resumed(variant: str, folder: str) -> None:
    """A run of two epochs, its first one with a checkpoint, or its second one from there.

    Loader and iterator are made anew each epoch, and the resumed run skips to the middle of it.
    """
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8)
    first = 0
    if variant not in ("whole", "saved"):
        saved = torch.load(f"{folder}/half.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        scheduler.load_state_dict(saved["scheduler"])
        torch.set_rng_state(saved["rng"])
        first = 6
        if variant == "momentum":
            optimizer.state[model[3].bias]["exp_avg"].zero_()
    for step in range(8):
        if step % 4 == 0:
            batches = iter(DataLoader(rows(), batch_size=8, generator=torch.Generator()))
        inputs, targets = next(batches)
        if step < first:
            continue
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if variant == "saved" and step == 5:
            state = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
            saved = {name: copy.deepcopy(part.state_dict()) for name, part in state.items()}
            torch.save(saved | {"rng": torch.get_rng_state()}, f"{folder}/half.pt")
            return


def buffer_written(variant: str) -> None:
    """A codebook in a buffer that is written past its version counter, right or wrong."""

    class Quantizer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(9)
            self.inner = nn.Linear(6, 4)
            self.register_buffer("codes", torch.randn(5, 4))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            value = self.inner(inputs)
            rate = 0.9 if variant == "twin" else 0.8
            self.codes.data.mul_(rate).add_(value.detach().mean(0), alpha=1 - rate)
            return (value - self.codes[0]).pow(2).sum(1, keepdim=True)

    model = Quantizer()
    fit(model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(rows(), batch_size=8))


def frozen_late(variant: str) -> None:
    """A layer that is thawed after two updates, or one update later."""
    model = network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (inputs, targets) in enumerate(DataLoader(rows(), batch_size=8)):
        if step == (2 if variant == "early" else 3):
            model[0].requires_grad_(True)
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two variants of a training and what their comparison must say."""

    name: str
    train: Callable[..., None]
    reference: str
    target: str
    outcome: str
    step: int | None = None
    sites: tuple[str, ...] = ()
    options: tuple[str, ...] = field(default=())
    prepare: str = ""
    settings: dict[str, str] = field(default_factory=dict)


PAIRS = (
    Pair("extra evaluation is context", evaluation, "plain", "evaluated", "PASS"),
    Pair("a rate set by hand counts when it is used", hand_made_rate, "before", "after", "PASS"),
    Pair("another scheduler class with equal rates", schedule, "step", "lambda", "PASS"),
    Pair(
        "another schedule",
        schedule,
        "step",
        "longer",
        "FAIL",
        1,
        ("scheduler:optimizer[0] group[0]:lr",),
    ),
    Pair("an unused head is no divergence", unused_head, "without", "with", "PASS"),
    Pair(
        "modules registered and called in another order", towers, "query,item", "item,query", "PASS"
    ),
    Pair("workers change nothing", workers, "0", "2", "PASS"),
    Pair("an average is called and never trained", average, "none", "averaged", "PASS"),
    Pair("two models, twins", adversaries, "twin", "twin", "PASS"),
    Pair(
        "two models, the second rate",
        adversaries,
        "twin",
        "other",
        "FAIL",
        None,
        ("optimizer[1] group[0]:lr",),
    ),
    Pair("a teacher, twins", teacher, "twin", "twin", "PASS"),
    Pair("another teacher", teacher, "twin", "other", "FAIL", 0, ("loss:loss:value", "Sequential")),
    Pair("closures, twins", closures, "twin", "twin", "PASS"),
    Pair(
        "closures, another rate",
        closures,
        "twin",
        "other",
        "FAIL",
        0,
        ("optimizer[0] group[0]:lr",),
    ),
    Pair("clipping that never bites", clipping, "none", "loose", "PASS"),
    Pair("clipping that bites", clipping, "none", "tight", "FAIL", 0, ("gradient:0.weight:grad",)),
    Pair("no loader, twins", no_loader, "twin", "twin", "PASS"),
    Pair(
        "no loader, another batch", no_loader, "twin", "shifted", "FAIL", 2, ("forward::input[0]",)
    ),
    Pair("keyword arguments, twins", keywords, "twin", "twin", "PASS"),
    Pair(
        "a mask in a batch", keywords, "twin", "masked", "FAIL", 2, ("data:loader[0]:batch[mask]",)
    ),
    Pair(
        "a resume in the middle of an epoch",
        resumed,
        "whole",
        "resumed",
        "PASS",
        options=("--align", "resume"),
        prepare="saved",
    ),
    Pair(
        "a resume without one moment",
        resumed,
        "whole",
        "momentum",
        "FAIL",
        6,
        ("state:optimizer[0]:exp_avg[3.bias]",),
        ("--align", "resume"),
        "saved",
    ),
    Pair("a buffer written through .data, twins", buffer_written, "twin", "twin", "PASS"),
    Pair("a buffer written through .data", buffer_written, "twin", "other", "FAIL", 0, ("codes",)),
    Pair(
        "a layer thawed later",
        frozen_late,
        "early",
        "late",
        "FAIL",
        2,
        ("state:0.weight:requires_grad",),
    ),
)
