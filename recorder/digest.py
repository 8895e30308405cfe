"""Digests: an exact fingerprint of a tensor's bytes, dtype and shape.

The digest is xxh3-128 over the little-endian bytes in row-major order, seeded with the xxh3-64 of
``dtype:shape`` (``float32:[3, 4]``), so that equal bytes of another shape or type differ.
"""

import ctypes
from typing import Any

import torch
import xxhash

KIND = "xxh3-128"
"""Named in the header; digests of different kinds are never compared."""


def seed_of(dtype: str, shape: tuple[int, ...]) -> int:
    """The seed for tensors of a dtype (``float32``) and shape."""
    return int(xxhash.xxh3_64_intdigest(f"{dtype}:{list(shape)}".encode()))


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
