"""The environment: what the header says of machine, versions, determinism and source state."""

import os
import platform
import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

FRAMEWORKS = (
    "torch", "numpy", "transformers", "accelerate", "lightning", "pytorch-lightning", "torchvision",
    "peft", "trl", "timm", "deepspeed", "ignite", "datasets", "torchdata", "torchao", "triton",
)  # fmt: skip
VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUBLAS_WORKSPACE_CONFIG", "PYTHONHASHSEED", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "NVIDIA_TF32_OVERRIDE", "TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DEBUG",
    "NCCL_ALGO", "NCCL_PROTO", "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM",
)  # fmt: skip
"""Environment variables that may change numbers. No other one is ever recorded."""
_GIT_SECONDS = 2.0


def versions() -> dict[str, str]:
    """Versions of python, torch, CUDA and the training frameworks that are imported."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    for name in FRAMEWORKS:
        if name.replace("-", "_") in sys.modules and name not in found:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                # Imported from a folder: it has no version to compare.
                continue
    return found


def environment() -> dict[str, Any]:
    """Devices, determinism switches, allowed variables and the state of the source tree."""
    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "devices": _devices(),
        "determinism": determinism(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "git": git_state(Path()),
    }


def determinism() -> dict[str, Any]:
    """The switches that decide whether equal programs give equal numbers."""
    return {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
    }


def process() -> dict[str, Any]:
    """What tells this process from any other."""
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "host": socket.gethostname(),
        "started": time.time(),
        "executable": sys.executable,
    }


def program() -> tuple[str, tuple[str, ...]]:
    """The program and its arguments, as they would be typed after ``python``."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name and spec.name != "__main__":
        name = spec.name.removesuffix(".__main__")
        return f"-m {name}", tuple(sys.argv[1:])
    return (sys.argv[0] if sys.argv else ""), tuple(sys.argv[1:])


def git_state(folder: Path) -> dict[str, Any]:
    """Commit and dirtiness of the source tree; empty outside of one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return {}
    return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain", "-uno"))}


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=_GIT_SECONDS,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        # No git, or a repository too slow to ask: the run goes on without its commit.
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        # Not Linux; the platform's own word must do.
        return platform.processor()
    return platform.processor()


def _devices() -> list[str]:
    initialized: Any = torch.cuda.is_initialized
    if torch.cuda.is_available() and initialized():
        return [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    return []
