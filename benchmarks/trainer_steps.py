"""Train a small Llama with Hugging Face's Trainer; print the seconds of each step as JSON.

The program that `record_cost.py --size trainer` measures: 4 layers of width 256 with batches of
8x128 tokens, AdamW, clipping, a schedule and logging every step. Needs the extra `frameworks`.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
import time

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


class Clock(TrainerCallback):
    """Notes when each step begins."""

    def __init__(self) -> None:
        self.starts: dict[str, list[float]] = {"elapsed": [], "cpu": []}

    def on_step_begin(self, *_: object, **__: object) -> None:
        self.starts["elapsed"].append(time.perf_counter())
        self.starts["cpu"].append(time.process_time())


def train(steps: int, folder: str) -> dict[str, list[float]]:
    """Train and return the seconds from each step's beginning to the next one's."""
    set_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=2048,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=256,
        )
    )
    rows = torch.randint(2048, ((steps + 1) * 8, 128))
    data = [{"input_ids": row, "labels": row} for row in rows]
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=8,
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
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    output, sys.stdout = sys.stdout, sys.stderr  # Trainer prints its logs
    with tempfile.TemporaryDirectory() as folder:
        seconds = train(options.steps, folder)
    print(json.dumps(seconds), file=output)
