"""Loops as people write them with torch alone."""

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.optim import swa_utils
from torch.utils.checkpoint import checkpoint

GENERATOR_SEED = 7


def rows(count: int = 24, width: int = 4) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(GENERATOR_SEED))


def batches(size: int = 6) -> list[Tensor]:
    return list(rows().split(size))


def network(width: int = 4, out: int = 1) -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, out))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.attention(self.norm(x)).chunk(3, -1)
        x = x + self.project(functional.scaled_dot_product_attention(*parts, is_causal=True))
        return x + self.mlp(x)


class GPT(nn.Module):
    """Its head shares the embedding's weight."""

    def __init__(self, width: int = 8, words: int = 16, recompute: bool | None = None) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight
        self.reentrant = recompute

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embed(ids)
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        logits = self.head(x)
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def nano_gpt(variant: str) -> None:
    """Batches by hand, decay groups, a rate by hand, accumulation, clipping, an estimate now and
    then; the fault decays the norms."""
    model = GPT()
    wide = [each for each in model.parameters() if each.dim() >= 2]
    narrow = [each for each in model.parameters() if each.dim() < 2]
    decay = 0.0 if variant == "twin" else 0.1
    optimizer = torch.optim.AdamW(
        [{"params": wide, "weight_decay": 0.1}, {"params": narrow, "weight_decay": decay}], lr=1e-2
    )
    data = torch.randint(16, (200,), generator=torch.Generator().manual_seed(1))

    def batch() -> tuple[Tensor, Tensor]:
        starts = torch.randint(190, (3,))
        chunks = torch.stack([data[start : start + 9] for start in starts])
        return chunks[:, :-1], chunks[:, 1:]

    for step in range(4):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (step + 1) / 4
        if step % 2 == 0:
            model.eval()
            with torch.no_grad():
                for _ in range(2):
                    model(*batch())
            model.train()
        for _ in range(2):
            (model(*batch())[1] / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def mini_gpt(variant: str) -> None:
    """A trainer object with an endless loader and callbacks; the fault unties the head."""
    model = GPT()
    if variant == "fault":
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())
    data = torch.randint(16, (20, 9), generator=torch.Generator().manual_seed(1))
    sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=1000)
    loader = torch.utils.data.DataLoader(data, 4, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    source = iter(loader)
    for _ in range(4):
        chunk = next(source)
        _, loss = model(chunk[:, :-1], chunk[:, 1:])
        model.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def adversaries(variant: str) -> None:
    """A GAN; the fault feeds the generator's samples to the critic without detaching the noise."""
    torch.manual_seed(4)
    maker = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 4)
    )
    critic = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))
    first = torch.optim.Adam(critic.parameters(), lr=1e-2, betas=(0.5, 0.999))
    second = torch.optim.Adam(
        maker.parameters(), lr=1e-2, betas=(0.5 if variant == "twin" else 0.9, 0.999)
    )
    criterion = nn.BCEWithLogitsLoss()
    for real in batches():
        critic.zero_grad()
        criterion(critic(real), torch.ones(6, 1)).backward()
        fake = maker(torch.randn(6, 3))
        criterion(critic(fake.detach()), torch.zeros(6, 1)).backward()
        first.step()
        maker.zero_grad()
        criterion(critic(fake), torch.ones(6, 1)).backward()
        second.step()


def recurrent(variant: str) -> None:
    """Truncated backpropagation through time; the fault forgets the state between chunks."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.embed = nn.Embedding(10, 6)
            self.cell = nn.LSTM(6, 8, dropout=0.0, batch_first=True)
            self.head = nn.Linear(8, 10)

        def forward(self, ids: Tensor, state: Any) -> Any:
            value, state = self.cell(self.embed(ids), state)
            return self.head(value), state

    model = Words()
    ids = torch.randint(10, (2, 33), generator=torch.Generator().manual_seed(1))
    state = (torch.zeros(1, 2, 8), torch.zeros(1, 2, 8))
    for start in range(0, 32, 8):
        state = tuple(each.detach() for each in state)
        if variant == "fault" and start == 16:
            state = (torch.zeros(1, 2, 8), torch.zeros(1, 2, 8))
        logits, state = model(ids[:, start : start + 8], state)
        loss = functional.cross_entropy(logits.transpose(1, 2), ids[:, start + 1 : start + 9])
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.data.add_(parameter.grad, alpha=-0.5)


def policy_gradient(variant: str) -> None:
    """REINFORCE: many forward passes, one backward; the fault discounts in another way."""
    policy = network(4, 2)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    factor = 0.9 if variant == "twin" else 0.8
    for _ in range(3):
        state, chances, rewards = torch.zeros(4), [], []
        for _ in range(5):
            distribution = torch.distributions.Categorical(logits=policy(state))
            action = distribution.sample()
            chances.append(distribution.log_prob(action))
            state = state + torch.randn(4) * 0.1 + action
            rewards.append(float(state.sum()))
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + factor * total
            returns.insert(0, total)
        loss = -(torch.stack(chances) * torch.tensor(returns)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def autoencoder(variant: str) -> None:
    """A VAE; the fault weighs the divergence otherwise."""

    class Coder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.encode, self.mean, self.spread = (
                nn.Linear(a, b) for a, b in ((4, 8), (8, 2), (8, 2))
            )
            self.decode = nn.Linear(2, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            hidden = self.encode(x).relu_()
            mean, spread = self.mean(hidden), self.spread(hidden)
            return self.decode(mean + torch.randn_like(mean) * (spread / 2).exp()), mean, spread

    model = Coder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    weight = 1.0 if variant == "twin" else 0.5
    for inputs in batches():
        again, mean, spread = model(inputs)
        divergence = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum()
        loss = functional.mse_loss(again, inputs, reduction="sum") + weight * divergence
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class SAM(torch.optim.Optimizer):
    """Steps twice, around an optimizer that steps once."""

    def __init__(self, parameters: Any, radius: float, **options: Any) -> None:
        super().__init__(parameters, {"radius": radius, **options})
        self.inner = torch.optim.SGD(self.param_groups, **options)
        self.param_groups = self.inner.param_groups

    @torch.no_grad()
    def first_step(self) -> None:
        held = [each for group in self.param_groups for each in group["params"]]
        norm = torch.stack([each.grad.norm() for each in held]).norm()
        for each in held:
            self.state[each]["before"] = each.data.clone()
            each.add_(each.grad * self.param_groups[0]["radius"] / norm)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for group in self.param_groups:
            for each in group["params"]:
                each.data = self.state[each]["before"]
        self.inner.step()
        self.zero_grad()


def sharpness_aware(variant: str) -> None:
    """A two-step optimizer; the fault is its radius."""
    model = network()
    optimizer = SAM(model.parameters(), 0.05 if variant == "twin" else 0.1, lr=0.1, momentum=0.9)
    for inputs in batches():
        model(inputs).square().mean().backward()
        optimizer.first_step()
        model(inputs).square().mean().backward()
        optimizer.second_step()


def second_order(variant: str) -> None:
    """LBFGS with a line search; the fault is its history."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    history = 5 if variant == "twin" else 2
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=4, history_size=history, line_search_fn="strong_wolfe"
    )
    inputs = rows()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)


def search(variant: str) -> None:
    """Several fits in one process; the fault is the third one's rate."""
    for trial, rate in enumerate((0.1, 0.05, 0.02)):
        model = network()
        if variant == "fault" and trial == 2:
            rate *= 2
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        for inputs in batches():
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()


def averaged(variant: str) -> None:
    """Weights averaged by torch.optim.swa_utils; the fault begins the schedule a step earlier."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    average = swa_utils.AveragedModel(model)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    flat = swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
    for step, inputs in enumerate(batches() * 2):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        if step >= (4 if variant == "twin" else 3):
            average.update_parameters(model)
            flat.step()
        else:
            cosine.step()
    swa_utils.update_bn(batches(), average)


def recomputed(reentrant: bool) -> Callable[[str], None]:
    def train(variant: str) -> None:
        model = GPT(recompute=reentrant)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        data = torch.randint(16, (12, 9), generator=torch.Generator().manual_seed(1))
        for step, chunk in enumerate(data.split(4)):
            if variant == "fault" and step == 1:
                chunk = chunk.flip(0)
            optimizer.zero_grad()
            model(chunk[:, :-1], chunk[:, 1:])[1].backward()
            optimizer.step()

    return train


reentrant, nonreentrant = recomputed(True), recomputed(False)


def functional_weights(variant: str) -> None:
    """Weights in a dictionary; the fault is the rate."""
    model = network()
    rate = 0.1 if variant == "twin" else 0.2
    weights = {name: each.detach().requires_grad_() for name, each in model.named_parameters()}
    for inputs in batches():
        loss = functional_call(model, weights, (inputs,)).square().mean()
        gradients = torch.autograd.grad(loss, list(weights.values()))
        weights = {
            name: (weight - rate * gradient).detach().requires_grad_()
            for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
        }


def forward_alone(variant: str) -> None:
    """Forward passes with gradients and nothing else; the fault is one weight."""
    model = network()
    if variant == "fault":
        model[3].weight.data[0, 0] += 1
    for inputs in batches():
        model(inputs)


def scripted(variant: str) -> None:
    """A TorchScript module; the fault is the data."""
    torch.manual_seed(2)
    model = torch.jit.script(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, inputs in enumerate(batches()):
        optimizer.zero_grad()
        given = inputs.flip(1) if variant == "fault" and step == 2 else inputs
        model(given).square().mean().backward()
        optimizer.step()


def without_hooks(variant: str) -> None:
    """An optimizer that is none of torch's; the fault is its rate from the third step on."""

    class Signs:
        def __init__(self, parameters: Any) -> None:
            self.parameters = list(parameters)
            self.rate = 0.01

        def step(self) -> None:
            for each in self.parameters:
                each.data.add_(each.grad.sign(), alpha=-self.rate)
                each.grad = None

    model = network()
    optimizer = Signs(model.parameters())
    for step, inputs in enumerate(batches()):
        if variant == "fault" and step == 2:
            optimizer.rate = 0.02
        model(inputs).square().mean().backward()
        optimizer.step()


def own_schedule(variant: str) -> None:
    """A scheduler outside of LRScheduler; the fault begins to decay a step later."""

    class Decay:
        def __init__(self, optimizer: Any, start: int) -> None:
            self.optimizer, self.start, self.count = optimizer, start, 0

        def step(self) -> None:
            self.count += 1
            for group in self.optimizer.param_groups:
                group["lr"] = 0.1 * 0.5 ** max(0, self.count - self.start)

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = Decay(optimizer, 0 if variant == "twin" else 1)
    for inputs in batches():
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        schedule.step()


def replaced_step(variant: str) -> None:
    """An optimizer whose step was replaced on the object; the fault is the rate."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 if variant == "twin" else 0.2)

    def step(self: Any) -> None:
        with torch.no_grad():
            for each in self.param_groups[0]["params"]:
                each.sub_(each.grad.sign(), alpha=self.param_groups[0]["lr"])

    optimizer.step = types.MethodType(step, optimizer)
    for inputs in batches():
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
