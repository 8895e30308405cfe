"""Small trainings that processes share in different ways."""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

Batches = Iterator[list[torch.Tensor]]
BATCH = 8


def network() -> nn.Sequential:
    """Uneven sizes, so that ranks hold parts of different lengths."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))


def batches(rank: int, world: int) -> Batches:
    """Batches of 8 samples in all, split over ``world`` processes."""
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(
        torch.randn(24, 6, generator=generator), torch.randn(24, 3, generator=generator)
    )
    sampler = DistributedSampler(data, world, rank, shuffle=False) if world > 1 else None
    return iter(DataLoader(data, BATCH // world, sampler=sampler))


def fit(
    model: nn.Module,
    pairs: Batches,
    *,
    before_update: Callable[[int], None] = lambda _: None,
    after_update: Callable[[int], None] = lambda _: None,
) -> nn.Module:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step, (inputs, targets) in enumerate(pairs):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        before_update(step)
        optimizer.step()
        after_update(step)
    return model


def alone() -> nn.Module:
    return fit(network(), batches(0, 1))


def replicated() -> nn.Module:
    return fit(DistributedDataParallel(network()), batches(dist.get_rank(), dist.get_world_size()))


def all_processes(name: str) -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=(name,))


def fully_sharded_network() -> nn.Sequential:
    model, mesh = network(), all_processes("dp")
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return model


def fully_sharded() -> nn.Module:
    return fit(fully_sharded_network(), batches(dist.get_rank(), dist.get_world_size()))


def hybrid(after_update: Callable[[int, nn.Sequential], None] = lambda *_: None) -> nn.Module:
    """Two pairs of processes that each hold all shards between them."""
    model = network()
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("copy", "dp"))
    for layer in (model[0], model):
        fully_shard(layer, mesh=mesh)
    pairs = batches(dist.get_rank(), dist.get_world_size())
    return fit(model, pairs, after_update=lambda step: after_update(step, model))


def tensor_parallel() -> nn.Module:
    """Every process sees all samples and holds a part of each layer."""
    model = network()
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(model, all_processes("tp"), plan)
    return fit(model, batches(0, 1))


def sharded_both_ways() -> nn.Module:
    """Two groups of processes split the samples, and inside each the layers are split."""
    model = network()
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for layer in (model[0], model):
        fully_shard(layer, mesh=mesh["dp"])
    return fit(model, batches(mesh.get_local_rank("dp"), 2))
