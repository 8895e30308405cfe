"""Train a small character-level GPT; save it half-way and go on from there.

The text is the licence of this repository, so nothing is downloaded. `--forget` plants the resume
bugs that people report most: something is saved but not restored, and nothing complains.
"""

import argparse
import itertools
import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

TEXT = Path(__file__).resolve().parents[2] / "LICENSE"
CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 48, 96, 4, 3, 16


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Windows of characters, each with the same window one character later."""

    def __init__(self, path: Path) -> None:
        text = path.read_text()
        self.alphabet = sorted(set(text))
        self.codes = torch.tensor([self.alphabet.index(letter) for letter in text])

    def __len__(self) -> int:
        return (len(self.codes) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * CONTEXT
        window = self.codes[start : start + CONTEXT + 1]
        return window[:-1], window[1:]


class Attention(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True, dropout_p=dropout)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = Attention(dropout)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.GELU(),
            nn.Linear(4 * WIDTH, WIDTH),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, letters: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(letters, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, letters, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.tokens(codes) + self.positions(torch.arange(codes.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_optimizer(model: nn.Module, lr: float) -> torch.optim.AdamW:
    """Matrices decay; biases and norms do not."""
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def make_schedule(
    optimizer: torch.optim.Optimizer, warmup: int, total: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Linear warm-up, then a cosine down to a tenth."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        done = min(1.0, (step - warmup) / max(1, total - warmup))
        return 0.1 + 0.45 * (1 + math.cos(math.pi * done))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


class Training:
    """A training run: all that a checkpoint must hold to go on as if nothing had happened."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.manual_seed(options.seed)
        text = Text(TEXT)
        self.total = options.steps
        self.model = GPT(len(text.alphabet), options.dropout)
        self.optimizer = make_optimizer(self.model, options.lr)
        self.schedule = make_schedule(self.optimizer, options.warmup, options.steps)
        self.shuffle = torch.Generator().manual_seed(options.seed)
        self.loader = DataLoader(
            text, batch_size=BATCH, shuffle=True, drop_last=True, generator=self.shuffle
        )
        self.step = 0
        self.batch = 0  # batches of the epoch that were used
        self.epoch_rng = self.shuffle.get_state()  # the shuffling generator when the epoch began

    def save(self, path: Path) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.schedule.state_dict(),
            "rng": torch.get_rng_state(),
            "data": {"epoch_rng": self.epoch_rng, "batch": self.batch},
            "step": self.step,
        }
        torch.save(state, path)

    def load(self, path: Path, forget: str | None) -> None:
        state = torch.load(path)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        if forget != "optimizer":
            self.optimizer.load_state_dict(state["optimizer"])
        if forget != "scheduler":
            self.schedule.load_state_dict(state["scheduler"])
        if forget != "data":
            self.batch = state["data"]["batch"]
            self.shuffle.set_state(state["data"]["epoch_rng"])
        if forget != "rng":
            torch.set_rng_state(state["rng"])

    def run(self, stop: int) -> None:
        self.model.train()
        while self.step < stop:
            self.epoch_rng = self.shuffle.get_state()
            # Of an epoch that was begun before a resume, the used batches are passed over.
            for codes, target in itertools.islice(self.loader, self.batch, None):
                self.update(codes, target)
                self.batch += 1
                if self.step == stop:
                    return
            self.batch = 0

    def update(self, codes: Tensor, target: Tensor) -> None:
        loss = F.cross_entropy(self.model(codes).flatten(0, 1), target.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.schedule.step()
        print(f"step {self.step:3d}  loss {loss.item():.4f}  lr {rate:.2e}")
        self.step += 1


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=24, help="length of the whole training")
    parser.add_argument("--stop-at", type=int, help="stop after this many steps")
    parser.add_argument("--save", type=Path, help="write a checkpoint at the end")
    parser.add_argument("--resume", type=Path, help="go on from a checkpoint")
    parser.add_argument("--forget", choices=("scheduler", "optimizer", "data", "rng"))
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    training = Training(options)
    if options.resume:
        training.load(options.resume, options.forget)
    training.run(options.stop_at or options.steps)
    if options.save:
        training.save(options.save)


if __name__ == "__main__":
    main()
