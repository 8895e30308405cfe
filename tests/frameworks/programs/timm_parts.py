"""timm's optimizer, scheduler, clipping and average of weights, in a loop like its own.

`import timm` needs torchvision, which its models and layers import. These parts do not, so they are
imported into empty packages.
"""

import importlib
import importlib.util
import sys
import types
from pathlib import Path

import torch
from torch import nn


def shell(name: str, folder: Path) -> None:
    """A package without what its __init__ would import."""
    module = types.ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module


spec = importlib.util.find_spec("timm")
if spec is not None and spec.origin is not None:
    for package in ("timm", "timm.optim", "timm.utils"):
        shell(package, Path(spec.origin).parent.joinpath(*package.split(".")[1:]))
    Lamb = importlib.import_module("timm.optim.lamb").Lamb
    CosineLRScheduler = importlib.import_module("timm.scheduler").CosineLRScheduler
    ModelEmaV3 = importlib.import_module("timm.utils.model_ema").ModelEmaV3
    dispatch_clip_grad = importlib.import_module("timm.utils.clip_grad").dispatch_clip_grad


def timm_loop(variant: str) -> None:
    """Rates by update, clipping by value, an average of the weights; the fault is the warm-up."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Flatten())
    model.append(nn.Linear(4 * 36, 3))
    optimizer = Lamb(model.parameters(), lr=1e-2, weight_decay=0.02)
    average = ModelEmaV3(model, decay=0.9)
    warm_up = 4 if variant == "twin" else 3
    scheduler = CosineLRScheduler(
        optimizer, t_initial=12, warmup_t=warm_up, warmup_lr_init=1e-3, t_in_epochs=False
    )
    images = torch.randn(24, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(images, torch.arange(24) % 3)
    updates = 0
    for epoch in range(2):
        for inputs, targets in torch.utils.data.DataLoader(data, 6, shuffle=True):
            loss = nn.functional.cross_entropy(model(inputs), targets, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            dispatch_clip_grad(model.parameters(), 0.5, mode="norm")
            optimizer.step()
            updates += 1
            average.update(model, step=updates)
            scheduler.step_update(updates, metric=None)
        scheduler.step(epoch + 1)
    with torch.no_grad():
        average.module.eval()(images[:4])
