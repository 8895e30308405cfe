"""Where steps begin and end in programs that do not end them the usual way."""

import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from workshop import Workshop

import traceparity
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Phase

INPUTS = torch.ones(2, 4)
FORWARD_ROWS = 7  # two layers and the root: inputs and outputs, and the state of the generator


class Net(nn.Module):
    """Two layers; a call of which somebody may be told."""

    def __init__(self, between: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 1)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = self.first(x)
        self.between()
        result: torch.Tensor = self.last(value)
        return result


def loss_of(model: nn.Module) -> torch.Tensor:
    result: torch.Tensor = model(INPUTS).square().sum()
    return result


def counts(workshop: Workshop, phase: Phase) -> list[int]:
    """How many rows of a phase each step has."""
    with open_trace(workshop.trace) as trace:
        assert trace.complete
        return [step.observations[phase] for step in trace.steps]


def micro_batches(workshop: Workshop) -> list[int]:
    with open_trace(workshop.trace) as trace:
        return [step.micro_batches for step in trace.steps]


def recorded_updates(workshop: Workshop) -> list[list[str]]:
    """The parameters of which each step has the value after its update."""
    with open_trace(workshop.trace) as trace:
        found = []
        for step in trace.steps:
            sites = {trace.sites[int(number)].site for number in trace.columns(step.number).site}
            found.append(
                sorted(
                    site.component
                    for site in sites
                    if site.phase == Phase.OPTIMIZER and site.field == "value"
                )
            )
        return found


PARAMETERS = ["first.bias", "first.weight", "last.bias", "last.weight"]


def interruptions() -> Iterator[BaseException | None]:
    yield None
    yield KeyboardInterrupt()
    yield ValueError("no")
    yield SystemExit(1)
    while True:
        yield None


def test_exceptions_caught_around_a_forward_pass_lose_no_later_one(workshop: Workshop) -> None:
    """torch runs no hook after a KeyboardInterrupt in a module."""
    planned = interruptions()

    def between() -> None:
        if error := next(planned):
            raise error

    model = Net(between)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with traceparity.record(workshop.trace):
        for _ in range(6):
            try:
                loss = loss_of(model)
            except BaseException:  # noqa: BLE001 - what the test is about
                continue
            loss.backward()
            optimizer.step()

    cut_short = 3 * 3  # their inputs, and what came out of the first layer
    assert counts(workshop, Phase.FORWARD) == [FORWARD_ROWS, cut_short + FORWARD_ROWS, FORWARD_ROWS]


def test_another_model_after_an_interrupted_one_is_a_root(workshop: Workshop) -> None:
    def between() -> None:
        raise KeyboardInterrupt

    first, second = Net(between), Net()
    optimizer = torch.optim.SGD(second.parameters(), lr=0.1)
    with traceparity.record(workshop.trace):
        with pytest.raises(KeyboardInterrupt):
            first(INPUTS)
        loss_of(second).backward()
        optimizer.step()

    assert counts(workshop, Phase.FORWARD) == [3 + FORWARD_ROWS]


def test_a_step_that_raises_ends_its_window(workshop: Workshop) -> None:
    class Moody(torch.optim.SGD):
        calls = 0

        def step(self, closure: Any = None) -> Any:
            self.calls += 1
            if self.calls == 2:
                raise RuntimeError("no")
            return super().step(closure)

    model = Net()
    optimizer = Moody(model.parameters(), lr=0.1)
    with traceparity.record(workshop.trace):
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(model).backward()
            try:
                optimizer.step()
            except RuntimeError:
                continue

    assert recorded_updates(workshop) == [PARAMETERS, [], PARAMETERS, PARAMETERS]
    with open_trace(workshop.trace) as trace:
        raised = [entry.site for entry in trace.sites if entry.site.field == "raised"]
    assert [str(site) for site in raised] == ["optimizer:optimizer[0]:raised"]


def test_a_closure_that_raises_ends_its_window(workshop: Workshop) -> None:
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    planned = interruptions()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        if error := next(planned):
            raise error
        return loss

    with traceparity.record(workshop.trace):
        for _ in range(6):
            try:
                optimizer.step(closure)
            except BaseException:  # noqa: BLE001 - what the test is about
                continue

    with open_trace(workshop.trace) as trace:
        assert [step.number for step in trace.steps] == list(range(6))


def by_hand(model: nn.Module) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.data -= 0.1 * parameter.grad
        parameter.grad = None


def weights_written_by_hand(model: nn.Module) -> None:
    for _ in range(3):
        loss_of(model).backward()
        by_hand(model)


def gradients_asked_for(model: nn.Module) -> None:
    parameters = list(model.parameters())
    for _ in range(3):
        gradients = torch.autograd.grad(loss_of(model), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= 0.1 * gradient


def a_class_of_its_own(model: nn.Module) -> None:
    class Duck:
        def step(self) -> None:
            by_hand(model)

    optimizer = Duck()
    for _ in range(3):
        loss_of(model).backward()
        optimizer.step()


@pytest.mark.parametrize(
    "train", [weights_written_by_hand, gradients_asked_for, a_class_of_its_own]
)
def test_changed_parameters_are_an_update(train: Any, workshop: Workshop) -> None:
    model = Net()
    with traceparity.record(workshop.trace):
        train(model)

    assert recorded_updates(workshop) == [PARAMETERS] * 3
    assert micro_batches(workshop) == [1, 1, 1]
    assert counts(workshop, Phase.LOSS) == [1, 1, 1]
    assert min(counts(workshop, Phase.BACKWARD)) >= len(PARAMETERS)
    assert not workshop.told().tail


def test_micro_batches_before_an_update_by_hand_are_one_step(workshop: Workshop) -> None:
    model = Net()
    with traceparity.record(workshop.trace):
        for _ in range(2):
            for _ in range(3):
                loss_of(model).backward()
            by_hand(model)

    assert micro_batches(workshop) == [3, 3]


def test_an_optimizer_whose_step_was_replaced_has_steps(workshop: Workshop) -> None:
    """Not from the first pass on: the first half of a two-step optimizer looks alike."""
    model = Net()
    with traceparity.record(workshop.trace):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.step = types.MethodType(lambda _: by_hand(model), optimizer)  # type: ignore[method-assign]
        for _ in range(5):
            loss_of(model).backward()
            optimizer.step()

    assert micro_batches(workshop) == [2, 1, 1, 1]


def test_both_halves_of_a_two_step_optimizer_are_one_step(workshop: Workshop) -> None:
    model = Net()
    with traceparity.record(workshop.trace):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss_of(model).backward()
            before = [parameter.detach().clone() for parameter in model.parameters()]
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(parameter.grad, alpha=0.05)
            optimizer.zero_grad()
            loss_of(model).backward()
            for parameter, value in zip(model.parameters(), before, strict=True):
                parameter.data = value
            optimizer.step()
            optimizer.zero_grad()

    assert micro_batches(workshop) == [2, 2, 2]
    assert recorded_updates(workshop) == [PARAMETERS] * 3


def replaced_and_differentiated(model: nn.Module) -> None:
    weights = {name: one.detach().requires_grad_() for name, one in model.named_parameters()}
    for _ in range(3):
        loss = functional_call(model, weights, (INPUTS,)).square().sum()
        gradients = torch.autograd.grad(loss, list(weights.values()))
        weights = {
            name: (weight - 0.1 * gradient).detach().requires_grad_()
            for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
        }


def transformed(model: nn.Module) -> None:
    weights = {name: one.detach() for name, one in model.named_parameters()}

    def loss(weights: Any) -> torch.Tensor:
        result: torch.Tensor = functional_call(model, weights, (INPUTS,)).square().sum()
        return result

    for _ in range(3):
        gradients = grad(loss)(weights)
        weights = {name: weight - 0.1 * gradients[name] for name, weight in weights.items()}


def one_gradient_a_sample(model: nn.Module) -> None:
    weights = {name: one.detach() for name, one in model.named_parameters()}

    def loss(weights: Any, sample: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = functional_call(model, weights, (sample[None],)).square().sum()
        return result

    for _ in range(3):
        gradients = vmap(grad(loss), in_dims=(None, 0))(weights, INPUTS)
        weights = {name: weight - 0.1 * gradients[name].mean(0) for name, weight in weights.items()}


@pytest.mark.parametrize("train", [replaced_and_differentiated, transformed, one_gradient_a_sample])
def test_functional_programs_have_steps(train: Any, workshop: Workshop) -> None:
    """The last update is in nobody's view: its weights are used no more."""
    model = Net()
    with traceparity.record(workshop.trace):
        train(model)

    assert recorded_updates(workshop) == [PARAMETERS, PARAMETERS, []]
    with open_trace(workshop.trace) as trace:
        notes = [note.reason for note in trace.not_observed]
    inside = train is not replaced_and_differentiated
    assert notes == ["the inside of a torch.func transform"] * inside


def test_inner_updates_of_a_meta_learner_are_no_steps(workshop: Workshop) -> None:
    """Adapted copies of the weights pass under the names of the parameters."""
    model = Net()
    with traceparity.record(workshop.trace):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            adapted = dict(model.named_parameters())
            for _ in range(3):
                loss = functional_call(model, adapted, (INPUTS,)).square().sum()
                gradients = torch.autograd.grad(loss, list(adapted.values()))
                adapted = {
                    name: weight - 0.1 * gradient
                    for (name, weight), gradient in zip(adapted.items(), gradients, strict=True)
                }
            optimizer.zero_grad()
            functional_call(model, adapted, (INPUTS,)).square().sum().backward()
            optimizer.step()

    assert recorded_updates(workshop) == [PARAMETERS] * 3


def test_forward_passes_alone_are_the_rest_of_a_run(workshop: Workshop) -> None:
    model = Net()
    with traceparity.record(workshop.trace):
        for _ in range(3):
            model(INPUTS)

    assert workshop.told().tail
    assert counts(workshop, Phase.FORWARD) == [3 * FORWARD_ROWS]


def test_forward_passes_without_gradients_alone_write_no_trace(workshop: Workshop) -> None:
    model = Net()
    with traceparity.record(workshop.trace), torch.no_grad():
        model(INPUTS)

    assert not workshop.trace.exists()
