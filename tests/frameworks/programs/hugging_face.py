"""Hugging Face: Trainer, Accelerate, TRL and PEFT, on random tokens with random weights."""

import os
import shutil
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_DATASETS_CACHE": "/nonexistent", "WANDB_DISABLED": "true", "CUDA_VISIBLE_DEVICES": "",
}  # fmt: skip

import accelerate
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)
from trl import SFTConfig, SFTTrainer

WORDS = [f"w{number}" for number in range(30)]


def tiny(**changes: Any) -> LlamaForCausalLM:
    set_seed(3)
    sizes = {
        "vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32,
        "attention_dropout": 0.1, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
    }  # fmt: skip
    return LlamaForCausalLM(LlamaConfig(**(sizes | changes)))


def tokens(count: int = 24, *, spoilt: bool = False) -> Dataset:
    generator = torch.Generator().manual_seed(5)
    rows = torch.randint(2, 32, (count, 8), generator=generator)
    if spoilt:
        rows[:, 3] = 2
    return Dataset.from_dict({"input_ids": rows.tolist(), "labels": rows.tolist()})


def arguments(**changes: Any) -> TrainingArguments:
    common = {
        "output_dir": "out", "per_device_train_batch_size": 2, "max_steps": 4, "use_cpu": True,
        "learning_rate": 1e-2, "report_to": [], "save_strategy": "no", "logging_steps": 1,
        "disable_tqdm": True, "warmup_steps": 2, "max_grad_norm": 0.5,
    }  # fmt: skip
    return TrainingArguments(**(common | changes))


def accumulating(variant: str) -> None:
    """Trainer with micro-batches; the fault is another rate."""
    rate = 1e-2 if variant == "twin" else 2e-2
    changes = {"gradient_accumulation_steps": 2, "learning_rate": rate}
    Trainer(tiny(), arguments(**changes), train_dataset=tokens()).train()


def evaluating(variant: str) -> None:
    """Trainer with bf16 autocast and evaluations; the fault is in the data."""
    changes = {"bf16": True, "eval_strategy": "steps", "eval_steps": 2}
    data = tokens(spoilt=variant == "fault")
    Trainer(tiny(), arguments(**changes), train_dataset=data, eval_dataset=tokens(4)).train()


def resuming(variant: str) -> None:
    """Trainer from the middle of a pass; the faults lose the moments, or begin the pass anew."""
    changes = {
        "max_steps": 4, "save_strategy": "steps", "save_steps": 2, "gradient_accumulation_steps": 2,
        "ignore_data_skip": variant == "anew",
    }  # fmt: skip
    trainer = Trainer(tiny(), arguments(**changes), train_dataset=tokens())
    saved = Path("out/checkpoint-2")
    if variant == "fault":
        saved = Path(shutil.copytree(saved, "spoilt"))
        state = torch.load(saved / "optimizer.pt")
        for moments in state["state"].values():
            moments["exp_avg"].zero_()
        torch.save(state, saved / "optimizer.pt")
    trainer.train(resume_from_checkpoint=None if variant == "whole" else str(saved))


def accelerated(variant: str) -> None:
    """A loop with Accelerate that accumulates gradients; the fault is a forgotten clipping."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(tokens().with_format("torch"), 4, shuffle=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            if accelerator.sync_gradients and variant == "twin":
                accelerator.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()


def accelerated_again(variant: str) -> None:
    """Accelerate from a saved state; the faults lose the schedule, or train on batches again."""
    loaders = accelerate.DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = accelerate.Accelerator(
        cpu=True, gradient_accumulation_steps=2, dataloader_config=loaders
    )
    model = tiny(attention_dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(tokens().with_format("torch"), 4, shuffle=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if variant != "fault":
        scheduler = accelerator.prepare(scheduler)
    if variant != "whole":
        accelerator.load_state("middle")
    if variant in ("twin", "fault"):
        loader = accelerator.skip_first_batches(loader, 2)
    for number, batch in enumerate(loader):
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if number == 1 and variant == "whole":
            accelerator.save_state("middle")


def adapted(variant: str) -> None:
    """PEFT: a LoRA adapter is trained with Trainer; the fault trains at another scale."""
    alpha = 4 if variant == "twin" else 8
    config = LoraConfig(r=2, lora_alpha=alpha, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(tiny(), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.05)
    Trainer(model, arguments(), train_dataset=tokens()).train()


def tuned(variant: str) -> None:
    """TRL's SFT on text with a tokenizer of its own; the fault is another text."""
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<eos>", *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>"
    )
    texts = [" ".join(WORDS[(start + 3 * n) % 30] for n in range(6)) for start in range(16)]
    if variant == "fault":
        texts = [text.replace("w5", "w6") for text in texts]
    config = SFTConfig(
        output_dir="out", per_device_train_batch_size=4, max_steps=3, use_cpu=True, report_to=[],
        save_strategy="no", learning_rate=1e-2, max_length=16, bf16=False, disable_tqdm=True,
        gradient_checkpointing=False,
    )  # fmt: skip
    data = Dataset.from_dict({"text": texts})
    SFTTrainer(tiny(), config, train_dataset=data, processing_class=tokenizer).train()
