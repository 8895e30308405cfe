"""The digest of a dense tensor, for who has its bytes: the recorder and who reads traces alike.

It is xxh3-128 over the little-endian bytes in row-major order, seeded with the xxh3-64 of
``dtype:shape`` (``float32:[3, 4]``), so that equal bytes of another shape or type differ. The seed
of a shard names its place too.
"""

from typing import Any

import xxhash

KIND = "xxh3-128"
"""Named in the header; digests of different kinds are never compared."""


def seed_of(dtype: str, shape: tuple[int, ...]) -> int:
    """The seed for tensors of a dtype (``float32``) and shape."""
    return int(xxhash.xxh3_64_intdigest(f"{dtype}:{list(shape)}".encode()))


def seed_of_shard(
    dtype: str, shape: tuple[int, ...], offset: tuple[int, ...], whole: tuple[int, ...]
) -> int:
    """The seed for shards of a shape that begin at ``offset`` in a tensor of shape ``whole``."""
    text = f"{dtype}:{list(shape)}@{list(offset)}/{list(whole)}"
    return int(xxhash.xxh3_64_intdigest(text.encode()))


def digest_of(data: Any, dtype: str, shape: tuple[int, ...]) -> bytes:
    """The digest of a tensor with these bytes, 16 bytes long."""
    return xxhash.xxh3_128_digest(data, seed_of(dtype, shape))
