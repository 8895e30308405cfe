"""Sound programs whose updates look odd: none, very small ones, several, or none that is seen."""

from collections.abc import Callable

import torch
from healthy import learn, shuffled
from loops import Network, evaluate
from sequences import WORDS, Tied, loader
from torch import nn
from torch.nn import functional


def closures(folder: str) -> None:
    """LBFGS: several passes over one batch inside an update, and a call before all of them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    model(torch.ones(2, 6))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    for inputs, targets in shuffled():

        def closure(inputs: torch.Tensor = inputs, targets: torch.Tensor = targets) -> torch.Tensor:
            optimizer.zero_grad()
            loss = functional.mse_loss(model(inputs), targets)
            loss.backward()
            return loss

        optimizer.step(closure)


def no_decay(folder: str) -> None:
    """No weight decay at all, and a rate of zero for the first step of the warm-up."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 4))
    for inputs, targets in shuffled():
        learn(model, optimizer, inputs, targets)
        warm.step()


def skipped(folder: str) -> None:
    """A gradient scaler that begins too high and leaves the first updates out."""
    torch.manual_seed(0)
    model = nn.Linear(6, 1)
    with torch.no_grad():
        model.weight.mul_(1e-4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, growth_interval=3)
    for inputs, targets in shuffled():
        loss = functional.l1_loss(model(inputs * 1e3), targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()


def several_optimizers(folder: str) -> None:
    """One optimizer for sparse embeddings, one for the rest, and a head that waits its turn."""
    torch.manual_seed(0)
    model = Tied()
    model.embed = nn.Embedding(WORDS, 8, sparse=True)
    model.head = nn.Linear(8, WORDS)
    auxiliary = nn.Linear(8, 1)
    first = torch.optim.SparseAdam(model.embed.parameters(), lr=1e-2)
    second = torch.optim.Adam([*model.mix.parameters(), *model.head.parameters()], lr=1e-2)
    third = torch.optim.SGD(auxiliary.parameters(), lr=1e-2)
    for step, (ids,) in enumerate(loader(0)):
        logits = model(ids[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        if step % 2:
            loss = loss + auxiliary(model.embed(ids)).square().mean()
        for optimizer in (first, second, third):
            optimizer.zero_grad()
        loss.backward()
        for optimizer in (first, second, third):
            optimizer.step()


def quiet_gradients(folder: str) -> None:
    """Momentum moves parameters whose gradient is zero; without it they stay."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters(), "momentum": 0.9}, {"params": model[2].parameters()}],
        lr=0.05,
    )
    for step, (inputs, targets) in enumerate(shuffled()):
        loss = functional.mse_loss(model(inputs), targets) * (0.0 if step > 2 else 1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def sharpness(folder: str) -> None:
    """SAM: two passes over a batch, parameters moved aside for the second one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for inputs, targets in shuffled():
        functional.mse_loss(model(inputs), targets).backward()
        with torch.no_grad():
            norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
            moves = [p.grad * (0.05 / norm) for p in model.parameters()]
            for parameter, move in zip(model.parameters(), moves, strict=True):
                parameter.add_(move)
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        with torch.no_grad():
            for parameter, move in zip(model.parameters(), moves, strict=True):
                parameter.sub_(move)
        optimizer.step()
        optimizer.zero_grad()


def half_precision(folder: str) -> None:
    """Updates too small for the precision of the weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for inputs, targets in shuffled():
        learn(model, optimizer, inputs.bfloat16(), targets.bfloat16())


def by_hand(folder: str) -> None:
    """Parameters updated by hand, without an optimizer."""
    torch.manual_seed(0)
    model = Network()
    for inputs, targets in shuffled():
        model.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.05 * parameter.grad


def unseen_updates(folder: str) -> None:
    """An optimizer that only clears gradients; parameters are updated past it, as compiled."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for inputs, targets in shuffled():
        optimizer.zero_grad()
        functional.mse_loss(model(inputs), targets).backward()
        torch._foreach_add_(
            [parameter.detach() for parameter in model.parameters()],
            [parameter.grad for parameter in model.parameters()],
            alpha=-0.05,
        )


def search(folder: str) -> None:
    """Three short fits from the same seed, with another rate each."""
    for rate in (0.01, 0.05, 0.1):
        torch.manual_seed(0)
        model = Network()
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for inputs, targets in shuffled():
            learn(model, optimizer, inputs, targets)


def stochastic_average(folder: str) -> None:
    """torch's averaged model, a scheduler that waits for it, and statistics taken anew."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    waiting = torch.optim.swa_utils.SWALR(optimizer, swa_lr=0.05)
    batches = shuffled()
    for epoch in range(3):
        for inputs, targets in batches:
            learn(model, optimizer, inputs, targets)
        if epoch == 2:
            averaged.update_parameters(model)
            waiting.step()
    torch.optim.swa_utils.update_bn(batches, averaged)
    evaluate(averaged)


def cleared_by_hand(folder: str) -> None:
    """Gradients cleared as old programs do it, past the version counters."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for inputs, targets in shuffled():
        functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.data.zero_()


PROGRAMS: tuple[Callable[[str], None], ...] = (
    by_hand, cleared_by_hand, closures, half_precision, no_decay, quiet_gradients, search,
    several_optimizers, sharpness, skipped, stochastic_average, unseen_updates,
)  # fmt: skip
