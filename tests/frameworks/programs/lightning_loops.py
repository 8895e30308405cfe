"""Lightning, Fabric and Ignite on a few rows of numbers."""

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Loss
from lightning.fabric import Fabric
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.nn import functional

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


def rows(count: int = 24, *, spoilt: bool = False) -> torch.utils.data.TensorDataset:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(7))
    if spoilt:
        inputs[:, 1] = 0
    return torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))


def loader(**options: Any) -> Any:
    return torch.utils.data.DataLoader(rows(**options), 4, shuffle=True)


def network() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Linear(8, 1))


class Regression(lightning.LightningModule):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.network = network()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        inputs, targets = batch
        return functional.mse_loss(self.network(inputs), targets)

    def validation_step(self, batch: Any, index: int) -> None:
        inputs, targets = batch
        self.log("loss", functional.mse_loss(self.network(inputs), targets))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.rate)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


class Adversaries(lightning.LightningModule):
    """Two optimizers, stepped by hand."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.rate = rate
        torch.manual_seed(4)
        self.maker, self.critic = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))

    def training_step(self, batch: Any, index: int) -> None:
        first, second = self.optimizers()
        real, noise = batch[0], torch.randn(len(batch[0]), 3)
        loss = functional.softplus(-self.critic(real)).mean()
        loss = loss + functional.softplus(self.critic(self.maker(noise).detach())).mean()
        first.zero_grad()
        self.manual_backward(loss)
        first.step()
        second.zero_grad()
        self.manual_backward(functional.softplus(-self.critic(self.maker(noise))).mean())
        second.step()

    def configure_optimizers(self) -> Any:
        return (
            torch.optim.Adam(self.critic.parameters(), lr=1e-2),
            torch.optim.Adam(self.maker.parameters(), lr=self.rate),
        )


def trainer(**options: Any) -> lightning.Trainer:
    quiet = {
        "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
        "enable_model_summary": False, "accelerator": "cpu", "max_epochs": 2,
    }  # fmt: skip
    return lightning.Trainer(**(quiet | options))


def fitted(variant: str) -> None:
    """Trainer with validation, accumulation and clipping; the fault is in the clipping."""
    limit = 0.5 if variant == "twin" else 0.2
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": limit}
    trainer(**options).fit(Regression(1e-2), loader(), loader(count=8))


def resumed(variant: str) -> None:
    """Trainer from the checkpoint of its first pass; the fault is a batch size of its own."""
    keeps = ModelCheckpoint(dirpath="saved", filename="{epoch}", save_top_k=-1)
    options = {"accumulate_grad_batches": 2, "enable_checkpointing": True, "callbacks": [keeps]}
    saved = None if variant == "whole" else Path("saved", "epoch=0.ckpt")
    batches = torch.utils.data.DataLoader(rows(), 6 if variant == "fault" else 4)
    trainer(**options).fit(Regression(1e-2), batches, loader(count=8), ckpt_path=saved)


def by_hand(variant: str) -> None:
    """Manual optimization of two optimizers; the fault is the second one's rate."""
    trainer(max_epochs=1).fit(Adversaries(1e-2 if variant == "twin" else 2e-2), loader())


def fabric(variant: str) -> None:
    """Fabric; the fault is in the data."""
    launcher = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    launcher.launch()
    model = network()
    model, optimizer = launcher.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for inputs, targets in launcher.setup_dataloaders(loader(spoilt=variant == "fault")):
        loss = functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        launcher.backward(loss)
        optimizer.step()


def ignited(variant: str) -> None:
    """Ignite with an evaluator; the fault leaves the model in eval mode after it."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    engine = create_supervised_trainer(model, optimizer, nn.MSELoss())
    evaluator = create_supervised_evaluator(model, metrics={"loss": Loss(nn.MSELoss())})
    if variant == "fault":
        update = engine._process_function

        def in_evaluation(engine: Engine, batch: Any) -> Any:
            if engine.state.epoch > 1:
                model.train = lambda mode=True: model
            return update(engine, batch)

        engine._process_function = in_evaluation

    @engine.on(Events.EPOCH_COMPLETED)
    def evaluate(engine: Engine) -> None:
        evaluator.run(loader(count=8))

    engine.run(loader(), max_epochs=2)
