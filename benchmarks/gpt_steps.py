"""Train a GPT on random tokens and print the seconds of each step as JSON, elapsed and of CPU.

The program that `record_cost.py` measures; `wide` is 8 layers of width 512 with batches of 4x256
tokens, `tiny` 4 layers of width 128 with batches of 12x64. Under a launcher the processes train it
with DistributedDataParallel, and the first one prints.
"""

import argparse
import itertools
import json
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


@dataclass(frozen=True, slots=True)
class Size:
    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int
    context: int


SIZES = {
    "wide": Size(layers=8, width=512, heads=8, vocabulary=2048, batch=4, context=256),
    "tiny": Size(layers=4, width=128, heads=4, vocabulary=2048, batch=12, context=64),
}


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1 = nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.proj = nn.Linear(size.width, size.width)
        self.norm2 = nn.LayerNorm(size.width)
        self.up = nn.Linear(size.width, 4 * size.width)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * size.width, size.width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        return x + self.down(self.act(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def train(size: Size, steps: int) -> dict[str, list[float]]:
    """Train and return the seconds from each step's beginning to the next one's."""
    torch.manual_seed(0)
    model: nn.Module = GPT(size)
    if dist.is_initialized():
        model = DistributedDataParallel(model)
        torch.manual_seed(1 + dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(size.vocabulary, ((steps + 1) * size.batch, size.context + 1))
    starts: dict[str, list[float]] = {"elapsed": [], "cpu": []}
    for (batch,) in DataLoader(TensorDataset(tokens), size.batch, shuffle=True):
        starts["elapsed"].append(time.perf_counter())
        starts["cpu"].append(time.process_time())
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {
        clock: [after - before for before, after in itertools.pairwise(times)]
        for clock, times in starts.items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    seconds = train(SIZES[options.size], options.steps)
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(seconds))
    if dist.is_initialized():
        dist.destroy_process_group()
