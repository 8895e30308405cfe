"""A small Transformer language model; `--fault` plants one of the faults that tests look for."""

import argparse
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, LENGTH, WIDTH, BATCH, STEPS = 37, 12, 16, 4, 4
VICTIM = "blocks.1.linear1.weight"


class LanguageModel(nn.Module):
    def __init__(self, refactored: bool) -> None:
        super().__init__()
        self.refactored = refactored
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h, src_mask=mask, is_causal=True)
            if self.refactored:
                h = h * 1.0
        return self.head(self.norm(h))


def flip_sign(weight: Tensor) -> None:
    weight[3].neg_()


def swap_two(weight: Tensor) -> None:
    weight[0, :2] = weight[0, :2].flip(0)


def one_ulp(weight: Tensor) -> None:
    weight[5, 7] = torch.nextafter(weight[5, 7], torch.tensor(torch.inf))


# Applied between the second and the third update. `.data` leaves no trace in the version counter.
WEIGHT_FAULTS: dict[str, tuple[Callable[[Tensor], None], bool]] = {
    "sign": (flip_sign, False),
    "swap": (swap_two, False),
    "ulp": (one_ulp, False),
    "ulp-by-data": (one_ulp, True),
}


def sample_order(fault: str) -> list[int]:
    order = torch.randperm(64, generator=torch.Generator().manual_seed(3)).tolist()
    if fault == "batchperm":
        order[:BATCH] = order[:BATCH][::-1]
    if fault == "sample":
        order[BATCH + 2] = order[-1]
    return order


def make_loader(fault: str) -> Iterable[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(VOCABULARY, (64, LENGTH + 1), generator=generator)
    return DataLoader(TensorDataset(tokens), batch_size=BATCH, sampler=sample_order(fault))


def make_optimizer(model: nn.Module, fault: str) -> torch.optim.Optimizer:
    named = dict(model.named_parameters())
    decay = [p for name, p in named.items() if p.dim() > 1]
    plain = [p for name, p in named.items() if p.dim() <= 1]
    groups = [
        {"params": decay, "weight_decay": 0.0 if fault == "wd" else 0.1},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-3 * (1.001 if fault == "lr" else 1.0))


def damage(model: nn.Module, fault: str) -> None:
    change, by_data = WEIGHT_FAULTS[fault]
    weight = model.get_parameter(VICTIM)
    with torch.no_grad():
        change(weight.data if by_data else weight)


def train(fault: str) -> None:
    torch.manual_seed(1 if fault == "seed" else 0)
    model = LanguageModel(refactored=fault == "refactor")
    torch.manual_seed(5)
    optimizer = make_optimizer(model, fault)
    horizon = STEPS + 1 if fault == "horizon" else STEPS
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=horizon)
    batches = iter(make_loader(fault))
    for step in range(STEPS):
        if step == 2 and fault in WEIGHT_FAULTS:
            damage(model, fault)
        (tokens,) = next(batches)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(f"step {step} loss {loss.item():.6f}")  # noqa: T201 - a program


if __name__ == "__main__":
    faults = ["none", "lr", "wd", "horizon", "seed", "batchperm", "sample", "refactor"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", choices=[*faults, *WEIGHT_FAULTS], default="none")
    train(parser.parse_args().fault)
