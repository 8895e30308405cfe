"""Operators of the loss, of backward passes and of updates are recorded; the run stays as it is."""

import inspect
import threading
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.checkpoint import checkpoint

import traceparity as tp
from traceparity.differ.diff import diff_runs
from traceparity.differ.observation import observe
from traceparity.differ.policy import Policy
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Phase


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x * 2


class Passing(TorchDispatchMode):
    """A mode of the program."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))


def descend(model, loss, optimizer=None, steps=2):
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model, torch.randn(5, 4)).backward()
        optimizer.step()
    return [*model.parameters(), torch.get_rng_state()]


def many_losses():
    functional = nn.functional

    def loss(model, x):
        out, other = model(x), torch.rand(5, 3)
        return (
            functional.cross_entropy(out, torch.randint(0, 3, (5,)), label_smoothing=0.1)
            + functional.binary_cross_entropy_with_logits(out, other, pos_weight=torch.rand(3))
            + functional.kl_div(functional.log_softmax(out, -1), other, reduction="batchmean")
            + torch.einsum("ij,kj->ik", out, other).logsumexp(1).mean()
            + functional.dropout(out, 0.5).norm() + out.prod(1).mean() + out.cumsum(0).max()
        )  # fmt: skip

    return descend(network(), loss)


def written_views():
    def loss(model, x):
        out = model(x).clone()
        out[:, 0] = out[:, 1] * 2
        out[1].mul_(3)
        return out.relu_().sum()

    return descend(network(), loss)


def recomputed():
    def loss(model, x):
        x = checkpoint(model, x.requires_grad_(), use_reentrant=True)
        return checkpoint(lambda x: nn.functional.dropout(x), x, use_reentrant=False).sum()

    return descend(network(), loss)


def penalised():
    def loss(model, x):
        out = model(x.requires_grad_()).sum()
        (gradient,) = torch.autograd.grad(out, x, create_graph=True)
        return out + (gradient.norm() - 1) ** 2

    model = network()
    return descend(model, loss, torch.optim.AdamW(model.parameters(), fused=True))


def with_closure():
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x = torch.randn(5, 4)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return [*model.parameters()]


def updated_in_backward():
    model = network()
    for parameter in model.parameters():
        own = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(lambda _, own=own: own.step())
    for _ in range(2):
        model.zero_grad()
        model(torch.randn(5, 4)).square().mean().backward()
    return [*model.parameters()]


def compiled_inside():
    # The counters are of the whole process: what was compiled before us would count as ours.
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = nn.Sequential(torch.compile(network(), backend="aot_eager"), nn.Linear(3, 3))
    loss = torch.compile(lambda out: out.exp().mean(), backend="aot_eager")
    found = descend(model, lambda model, x: loss(model(x)))
    # What is left uncompiled since we watch would run other kernels.
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    torch._dynamo.reset()
    return [*found, torch.tensor(graphs)]


def of_higher_order():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            x = self.inner(x)
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    found = descend(Branches(), lambda model, x: model(x).square().mean())
    torch._dynamo.reset()
    return found


def modes_of_the_program():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for turn in range(4):
        optimizer.zero_grad()
        x, own = torch.randn(5, 4), Passing()
        if turn == 0:
            with own:
                loss = model(x).sum()
            loss.backward()
        elif turn == 1:
            loss = model(x).sum()
            with own:
                loss.backward()
        elif turn == 2:
            loss = model(x).sum()
            with own:
                loss.backward()
                optimizer.step()
            continue
        else:
            with own:
                model(x).sum().backward()
                optimizer.step()
            continue
        optimizer.step()
    return [*model.parameters()]


def errors():
    class Raises(Square):
        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("of the program")

    def refuse(*_):
        raise KeyError("of the program")

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        with pytest.raises(ValueError, match="of the program"):
            Raises.apply(model(torch.randn(5, 4))).sum().backward()
        model(torch.randn(5, 4)).square().mean().backward()
        handle = optimizer.register_step_pre_hook(refuse)
        with pytest.raises(KeyError):
            optimizer.step()
        handle.remove()
        optimizer.step()
    return [*model.parameters()]


PROGRAMS = (
    many_losses, written_views, recomputed, penalised, with_closure, updated_in_backward,
    modes_of_the_program, errors,
)  # fmt: skip
CASES = [
    *((program, "*") for program in PROGRAMS),
    # A mode is entered for single calls where the whole step is not chosen.
    *((program, "0,optimizer[0]") for program in (recomputed, with_closure, modes_of_the_program)),
    *(
        pytest.param(program, "*", marks=pytest.mark.slow)
        for program in (compiled_inside, of_higher_order)
    ),
]


def result_of(program, path=None, operators="*"):
    torch.manual_seed(0)
    if path is None:
        found = program()
    else:
        with tp.record(path, operators=operators):
            found = program()
    assert _get_current_dispatch_mode() is None
    return [each.detach().clone() for each in found]


# Compiling warns of what torch itself does.
@pytest.mark.filterwarnings("ignore:.*attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize(("program", "operators"), CASES)
def test_a_program_whose_operators_are_watched_is_bit_identical(program, operators, tmp_path):
    """And its recording equals another one of it, down to each operator."""
    paths = [tmp_path / "a.trace", tmp_path / "b.trace"]
    plain = result_of(program)

    watched = [result_of(program, path, operators) for path in paths]

    assert all(torch.equal(*pair) for pair in zip(plain, watched[0], strict=True))
    with open_trace(paths[0]) as trace:
        assert trace.complete, trace.incomplete_reason
        assert any(".output" in entry.site.field for entry in trace.sites)
    again = diff_runs(paths[0], [paths[1]], Policy())
    assert again.outcome.name == "PASS", again.reason


def operators_of(path, phase):
    """For each operator its component, its line, and what the recording says it came from."""
    found = {}
    with open_trace(path) as trace:
        for number in range(len(trace.steps)):
            columns = trace.columns(number)
            for row, site in enumerate(columns.site):
                entry = trace.sites[site]
                operator, _, what = entry.site.field.partition("].")
                if entry.site.phase != phase or not what:
                    continue
                key = entry.site.component, f"{operator}]"
                line, told = found.setdefault(key, [entry.location, None])
                if what == "from":
                    told = observe(trace, columns, row).plain
                found[key] = [line or entry.location, told]
    return found


def line(function, text):
    lines, first = inspect.getsourcelines(function)
    number = first + next(n for n, each in enumerate(lines) if text in each)
    return f"test_operator_passes.py:{number}"


def file_line(location):
    return location.rpartition("/")[2]


class Squared(nn.Module):
    def forward(self, x):
        x = Square.apply(x)
        return x.exp()


def one_step():
    model = nn.Sequential(nn.Linear(4, 2), Squared())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    out = model(torch.randn(5, 4))
    held = out.clone()
    held[:, 0] = out[:, 1].sigmoid()
    loss = held.tanh().sum()
    loss.backward()
    optimizer.step()
    return [*model.parameters()]


@pytest.fixture(scope="module")
def one_step_trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("passes") / "a.trace"
    result_of(one_step, path)
    return path


def test_operators_of_the_backward_pass_are_told_by_the_lines_that_led_to_them(one_step_trace):
    """That of the forward operator, or of the program's own formula; and that of the call."""
    found = operators_of(one_step_trace, Phase.BACKWARD)

    called = line(one_step, "loss.backward()")
    places = {
        ("1", "aten.mul[0]"): ("ExpBackward0", line(Squared.forward, "x.exp()")),
        ("program", "aten.tanh_backward[0]"): ("TanhBackward0", line(one_step, "held.tanh()")),
        ("program", "aten.sigmoid_backward[0]"):
            ("SigmoidBackward0", line(one_step, ".sigmoid()")),
        ("0", "aten.mm[0]"): ("AddmmBackward0", line(one_step, "out = model")),
    }  # fmt: skip
    for key, (node, created) in places.items():
        location, told = found[key]
        assert file_line(location) == created, key
        assert told["node"] == node
        assert (file_line(told["forward"]), file_line(told["backward"])) == (created, called)
    written = [told for _, told in found.values() if told["node"] == "CopySlices"]
    assert {file_line(told["forward"]) for told in written} == {line(one_step, "held[:, 0] =")}
    location, told = found["1", "aten.mul[1]"]
    assert file_line(location) == line(Square.backward, "gradient * x * 2")
    assert told["node"] == "SquareBackward"
    assert file_line(told["forward"]) == line(Square.forward, "return x * x")


def test_operators_of_the_loss_and_the_update_are_told_by_their_lines(one_step_trace):
    loss = operators_of(one_step_trace, Phase.LOSS)
    update = operators_of(one_step_trace, Phase.OPTIMIZER)

    assert file_line(loss["program", "aten.tanh[0]"][0]) == line(one_step, "held.tanh()")
    location, told = update["optimizer[0]", "aten.add_[0]"]
    assert file_line(location) == file_line(told["step"]) == line(one_step, "optimizer.step()")


class Deep(torch.autograd.Function):
    """Runs a backward pass inside a backward pass, so often that the engine takes a new thread."""

    threads: ClassVar[set[int]] = set()

    @staticmethod
    def forward(ctx, x, depth):
        ctx.depth = depth
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Deep.threads.add(threading.get_ident())
        if ctx.depth:
            with torch.enable_grad():
                inner = torch.ones(2, requires_grad=True)
                Deep.apply(inner, ctx.depth - 1).sum().backward()
        return gradient * 3, None


def test_operators_that_an_engine_runs_in_a_thread_of_its_own_are_seen(tmp_path):
    """As those on a device are: torch hands the modes of the calling thread on."""

    def program():
        model = nn.Linear(4, 2)
        return descend(model, lambda model, x: Deep.apply(model(x), 130).sum(), steps=1)

    plain = result_of(program)
    watched = result_of(program, tmp_path / "a.trace")

    assert len(Deep.threads) > 1
    assert all(torch.equal(*pair) for pair in zip(plain, watched, strict=True))
    found = operators_of(tmp_path / "a.trace", Phase.BACKWARD)
    formulas = [told for location, told in found.values()
                if file_line(location) == line(Deep.backward, "gradient * 3")]  # fmt: skip
    assert len(formulas) == 131


def test_phases_choose_which_operators_are_recorded(tmp_path):
    torch.manual_seed(0)
    with tp.record(tmp_path / "a.trace", operators="*", phases="loss,gradient"):
        one_step()

    phases = {phase: len(operators_of(tmp_path / "a.trace", phase)) for phase in Phase}

    assert phases[Phase.LOSS] > 3
    assert not phases[Phase.FORWARD] + phases[Phase.BACKWARD] + phases[Phase.OPTIMIZER]
