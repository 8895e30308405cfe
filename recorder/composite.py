"""Tensors that are no block of memory: sparse, nested and quantized ones, by their dense parts."""

import math

import torch

from traceparity.recorder.sketch import Sketcher

_SPARSE = frozenset(
    {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
)
DENSE_BYTES = 1 << 26
"""Up to this size a sparse tensor is written out in full where values are kept."""


def is_composite(tensor: torch.Tensor) -> bool:
    """Whether a tensor is made of several dense ones."""
    return tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested


def parts_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that make up a sparse, nested or quantized one."""
    if tensor.is_nested:
        return [*tensor.unbind()]
    if tensor.is_quantized:
        return [tensor.int_repr(), *_quantizer(tensor)]
    if tensor.layout is torch.sparse_coo:
        whole = tensor.coalesce()
        return [whole.indices(), whole.values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor.to_dense()]


def _quantizer(tensor: torch.Tensor) -> list[torch.Tensor]:
    """What the whole numbers of a quantized tensor stand for."""
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale = torch.tensor(tensor.q_scale(), dtype=torch.float64)
        return [scale, torch.tensor(tensor.q_zero_point())]
    axis = torch.tensor(tensor.q_per_channel_axis())
    return [tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points(), axis]


def is_sparse_floats(tensor: torch.Tensor) -> bool:
    """Whether it is a sparse tensor of real inexact numbers, whose distance means something."""
    return tensor.layout in _SPARSE and not tensor.is_nested and tensor.is_floating_point()


def sparse_sketch(tensor: torch.Tensor, sketcher: Sketcher) -> torch.Tensor:
    """The sketch that the dense form of a sparse tensor has, without making that form."""
    whole = (tensor if tensor.layout is torch.sparse_coo else tensor.to_sparse()).coalesce()
    indices, values = whole.indices(), whole.values().to(torch.float32)
    # Hybrid tensors hold a dense block for each index.
    inner = values[0].numel() if len(values) else 1
    place = torch.zeros(indices.shape[1], dtype=torch.int64)
    for row, size in zip(indices.cpu(), tensor.shape, strict=False):
        place = place * size + row
    places = (place[:, None] * inner + torch.arange(inner)).view(-1)
    return sketcher.scattered(values.cpu().reshape(-1), places)


def written_out(tensor: torch.Tensor) -> torch.Tensor | None:
    """The dense form of a sparse tensor; None where that would be too large."""
    size = math.prod(tensor.shape) * tensor.element_size()
    return tensor.to_dense() if size <= DENSE_BYTES else None
