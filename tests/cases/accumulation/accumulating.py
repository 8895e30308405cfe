"""A training in updates of eight samples, cut into micro-batches as told, and with what fault.

accumulating.py --parts 4 --fault clip-each
"""

import argparse
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

PAD = -100
FAULTS = (
    "scheduler-each", "clip-each", "zero-after", "zero-between", "undivided", "mean-of-means",
    "unscale-after-clip", "step-each", "omit-last", "other-order", "no-zero",
)  # fmt: skip


class Sentences(Dataset):
    """Sentences of unequal length; the token after each one is to be told."""

    def __init__(self, count: int = 44, vocab: int = 13) -> None:
        generator = torch.Generator().manual_seed(5)
        lengths = torch.randint(3, 9, (count,), generator=generator).tolist()
        self.rows = [torch.randint(0, vocab, (length,), generator=generator) for length in lengths]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, labels = torch.zeros(8, dtype=torch.long), torch.full((8,), PAD)
        row = self.rows[index]
        tokens[: len(row)] = row
        labels[: len(row) - 1] = row[1:]
        return tokens, labels


class Model(nn.Module):
    """Embedding, a layer in between and a head, which may share the embedding's weight."""

    def __init__(self, kind: str, vocab: int = 13, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.norm = nn.BatchNorm1d(8) if kind == "batchnorm" else nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        if kind == "tied":
            self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.mix(self.embed(tokens))))


def updates(args: argparse.Namespace) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
    """The micro-batches of each update; the last update of an epoch is a short one."""
    data = Sentences()
    for epoch in range(args.epochs):
        seed = epoch + 100 * (args.fault == "other-order")
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed)).tolist()
        counts, parts = [], []
        for begin in range(0, len(order), 8):
            samples = order[begin : begin + 8]
            cut = [3, 4, 1] if args.uneven else [8 // args.parts] * args.parts
            pieces, at = [], 0
            for size in cut:
                pieces += [samples[at : at + size]] if samples[at : at + size] else []
                at += size
            counts.append(len(pieces))
            parts += pieces
        loader = iter(DataLoader(data, batch_sampler=parts))
        for count in counts:
            yield [next(loader) for _ in range(count)]


def tokens_of(labels: torch.Tensor) -> int:
    return int((labels != PAD).sum())


def make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=1e-3)
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = Model(args.model)
    optimizer = make_optimizer(args.optimizer, model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, args.step_size, 0.5)
    scaler = torch.amp.GradScaler("cpu", enabled=args.amp, init_scale=2.0**10)
    fault = args.fault

    def clip() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)

    for window in updates(args):
        total = sum(tokens_of(labels) for _, labels in window)
        if fault == "omit-last" and len(window) > 1:
            window = window[:-1]
        for number, (tokens, labels) in enumerate(window):
            logits = model(tokens).flatten(0, 1)
            summed = functional.cross_entropy(
                logits, labels.flatten(), ignore_index=PAD, reduction="sum"
            )
            tokens_here = tokens_of(labels)
            if fault == "undivided":
                loss = summed / tokens_here
            elif fault == "mean-of-means":
                loss = summed / tokens_here / len(window)
            else:
                divisor = {"total": total, "own": tokens_here, "samples": 8 * len(labels)}
                loss = summed / divisor[args.divide_by]
            if fault == "zero-between":
                optimizer.zero_grad()
            weight = tokens_here / total if args.divide_by == "own" else 1.0
            scaler.scale(loss).backward(gradient=torch.tensor(weight))
            if fault == "clip-each":
                clip()
            if fault == "scheduler-each" and number < len(window) - 1:
                scheduler.step()
            if fault == "step-each":
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        if fault == "step-each":
            scheduler.step()
            continue
        if args.divide_by == "samples":
            for parameter in model.parameters():
                parameter.grad /= len(window)
        if fault == "unscale-after-clip":
            clip()
        scaler.unscale_(optimizer)
        if fault not in ("clip-each", "unscale-after-clip"):
            clip()
        if fault == "zero-after":
            optimizer.zero_grad()
        scaler.step(optimizer)
        scaler.update()
        if fault != "no-zero":
            optimizer.zero_grad()
        scheduler.step()


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--uneven", action="store_true")
    parser.add_argument(
        "--divide-by",
        choices=["total", "own", "samples"],
        default="total",
        help="a loss is divided by the tokens of the update; by its own, and weighs in backward; "
        "or by its samples, and the gradients are divided by the number of micro-batches",
    )
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--model", choices=["plain", "tied", "batchnorm"], default="plain")
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--max-norm", type=float, default=0.05)
    parser.add_argument("--step-size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    return parser.parse_args(words)


if __name__ == "__main__":
    train(arguments())
