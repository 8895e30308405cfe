"""Train a Llama with Hugging Face's Trainer; print the seconds of each step as JSON.

The program that `record_cost.py --size trainer` and `--size trainer-wide` measure, with AdamW,
clipping, a schedule and logging every step. Needs the extra `frameworks`.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


@dataclass(frozen=True, slots=True)
class Size:
    """Layers, width, heads, batch size and sequence length."""

    layers: int
    width: int
    heads: int
    batch: int
    length: int


SIZES = {"trainer": Size(4, 256, 4, 8, 128), "trainer-wide": Size(8, 512, 8, 4, 256)}
"""The wide one is of the size of `gpt_steps.py`'s, for which the limits were set."""


class Clock(TrainerCallback):
    """Notes when each step begins."""

    def __init__(self) -> None:
        self.starts: dict[str, list[float]] = {"elapsed": [], "cpu": []}

    def on_step_begin(self, *_: object, **__: object) -> None:
        self.starts["elapsed"].append(time.perf_counter())
        self.starts["cpu"].append(time.process_time())


def train(size: Size, steps: int, folder: str) -> dict[str, list[float]]:
    """Train and return the seconds from each step's beginning to the next one's."""
    set_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=2048,
            hidden_size=size.width,
            intermediate_size=3 * size.width,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.heads,
            max_position_embeddings=256,
        )
    )
    rows = torch.randint(2048, ((steps + 1) * size.batch, size.length))
    data = [{"input_ids": row, "labels": row} for row in rows]
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=size.batch,
        max_steps=steps + 1,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
    )
    clock = Clock()
    Trainer(model, arguments, train_dataset=data, callbacks=[clock]).train()
    return {
        name: [after - before for before, after in itertools.pairwise(times)]
        for name, times in clock.starts.items()
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    output, sys.stdout = sys.stdout, sys.stderr  # Trainer prints its logs
    with tempfile.TemporaryDirectory() as folder:
        seconds = train(SIZES[options.size], options.steps, folder)
    print(json.dumps(seconds), file=output)
