"""Trainings in which more than one model takes part: scalers, teachers, evaluation, tables."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from trainings import Pair, network, rows


def scaled(variant: str) -> None:
    """A gradient scaler that begins too high: gradients overflow, and the updates are left out."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    backoff = 0.25 if variant == "other" else 0.5
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**122, backoff_factor=backoff)
    for inputs, targets in DataLoader(rows(80), batch_size=8):
        value = model(inputs)
        # The second part is zero, and its gradient is not: the loss itself does not overflow.
        loss = functional.mse_loss(value, targets) + 1000 * (value - value.detach()).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def mean_teacher(variant: str) -> None:
    """A teacher that is a moving average of the student and tells it what to learn."""
    model, guide = network(), network().requires_grad_(False)
    decay = 0.9 if variant == "twin" else 0.8
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, _ in DataLoader(rows(), batch_size=8):
        with torch.no_grad():
            wanted = guide(inputs)
        loss = functional.mse_loss(model(inputs), wanted + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, own in zip(guide.parameters(), model.parameters(), strict=True):
                mine.lerp_(own, 1 - decay)


def left_in_eval(variant: str) -> None:
    """An evaluation after two updates, after which training mode is set again or forgotten."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (inputs, targets) in enumerate(DataLoader(rows(), batch_size=8)):
        if step == 2:
            model.eval()
            with torch.no_grad():
                model(inputs)
            model.train(variant != "forgotten")
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def sparse_gradients(variant: str) -> None:
    """An embedding whose gradients are sparse, with an optimizer of its own."""
    torch.manual_seed(2)
    table, head = nn.Embedding(40, 8, sparse=True), nn.Linear(8, 1)
    first = torch.optim.SparseAdam(table.parameters(), lr=1e-2 if variant == "twin" else 2e-2)
    second = torch.optim.SGD(head.parameters(), lr=0.1)
    tokens = torch.arange(64).reshape(16, 4) % 37
    for batch in DataLoader(tokens, batch_size=4):
        loss = head(table(batch).mean(1)).square().mean()
        first.zero_grad()
        second.zero_grad()
        loss.backward()
        first.step()
        second.step()


PAIRS = (
    Pair("updates that a scaler leaves out, twins", scaled, "twin", "twin", "PASS"),
    Pair(
        "a scaler that backs off further", scaled, "twin", "other", "FAIL", None, ("scaler.scale",)
    ),
    Pair("a moving teacher, twins", mean_teacher, "twin", "twin", "PASS"),
    Pair(
        "a teacher that moves faster",
        mean_teacher,
        "twin",
        "other",
        "FAIL",
        1,
        ("state:", "loss:loss:value", "Sequential"),
    ),
    Pair("an evaluation between updates, twins", left_in_eval, "set", "set", "PASS"),
    Pair("a model left in eval mode", left_in_eval, "set", "forgotten", "FAIL", 2, ("training",)),
    Pair("sparse gradients, twins", sparse_gradients, "twin", "twin", "PASS"),
    Pair("sparse gradients, another rate", sparse_gradients, "twin", "other", "FAIL", 0, (":lr",)),
    Pair(
        "sparse gradients within a limit",
        sparse_gradients,
        "twin",
        "twin",
        "PASS",
        options=("--policy", "close"),
    ),
)
