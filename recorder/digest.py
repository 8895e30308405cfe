"""Digests: an exact fingerprint of a tensor's bytes, dtype and shape (see `tensor_digest`)."""

import ctypes
from typing import Any

import torch
import xxhash

from traceparity.tracefmt.tensor_digest import KIND, seed_of

__all__ = ["KIND", "dense_bytes", "dense_digest", "joined_digest", "seed_of"]


def dense_bytes(tensor: torch.Tensor) -> Any:
    """The memory of a contiguous CPU tensor, as a buffer without a copy.

    The buffer holds no reference to the tensor: use it while the tensor lives.
    """
    size = tensor.numel() * tensor.element_size()
    if not size:
        return b""
    return (ctypes.c_char * size).from_address(tensor.data_ptr())


def dense_digest(tensor: torch.Tensor, seed: int) -> bytes:
    """The digest of a contiguous CPU tensor, 16 bytes."""
    return xxhash.xxh3_128_digest(dense_bytes(tensor), seed)


def joined_digest(digests: list[bytes], seed: int) -> bytes:
    """The digest of a tensor made of several parts (sparse, nested, quantized)."""
    return xxhash.xxh3_128_digest(b"".join(digests), seed)
