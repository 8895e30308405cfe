"""`tp-record --watch`: calls of named functions become observations, and the run stays as it is."""

import pytest
from workshop import Ending, Workshop, our_lines, without_our_lines

from traceparity.recorder.settings import Settings, SettingsError
from traceparity.tracefmt.reader import open_trace

pytestmark = pytest.mark.slow

FIRST = """
    import torch

    KNOWN = {}

    def known(function):
        KNOWN[function.__name__] = function
        return function

    def jitter(x, strength=0.1, *, mode="add"):
        "Adds noise."
        return x + strength * torch.randn_like(x)

    again = jitter

    def last(x):
        return None
"""
"""A module that imports torch, so that it is not done when the recording begins."""

LATER = """
    class Base:
        def inherited(self, x):
            return [x, {"twice": 2 * x}]

    class Trainer(Base):
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer

        def step(self, x, scale):
            self.optimizer.zero_grad()
            loss = scale * self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
            return loss.item()

        @staticmethod
        def seed(number):
            return 2 * number

        @classmethod
        def make(cls, *parts):
            return cls(*parts)

        async def fetch(self):
            return 1
"""
SCRIPT = """
    import asyncio, inspect, pickle, traceback, warnings
    from first import jitter, again
    import first
    import torch

    def rescaled(number):
        if number == 2:
            warnings.warn("two", stacklevel=2)
            raise KeyError(number)
        return 1.0

    from later import Trainer

    def main():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        trainer = Trainer.make(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for number in range(4):
            x = jitter(torch.randn(3, 4), mode="add")
            try:
                scale = rescaled(number)
            except KeyError:
                scale = 2.0
                print(traceback.format_exc())
            print(trainer.step(x, scale), trainer.seed(number), Trainer.seed(3))
            trainer.inherited(number)
        first.last(x)
        print(model.weight, torch.get_rng_state().sum(), asyncio.run(trainer.fetch()))
        for function in (jitter, again, Trainer.step, trainer.step, Trainer.make, rescaled):
            print(inspect.signature(function), function.__name__, function.__qualname__)
            print(function.__module__, function.__doc__, inspect.getsource(function))
        print(pickle.loads(pickle.dumps(jitter)) is jitter is again, first.jitter is jitter)
        jitter(1, 2, 3, 4)

    if __name__ == "__main__":
        main()
"""
WATCHED = (
    "first.jitter", "first.last", "script.rescaled", "later.Trainer.step", "later.Trainer.seed",
    "later.Trainer.make", "later.Trainer.inherited", "later.Trainer.fetch", "later.Trainer",
    "first.gone", "nowhere.at_all",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(shared_workshop: Workshop) -> tuple[Ending, Ending]:
    """A script run plainly and recorded."""
    for name, text in (("first.py", FIRST), ("later.py", LATER), ("script.py", SCRIPT)):
        shared_workshop.write(name, text)
    plain = shared_workshop.run("python", "script.py")
    options = tuple(word for name in WATCHED for word in ("--watch", name))
    return plain, shared_workshop.record("script.py", options=options)


@pytest.fixture(scope="module")
def rows(runs: tuple[Ending, Ending], shared_workshop: Workshop) -> list[tuple[str, str, object]]:
    """Component, field and plain value of all rows of watched calls, in order."""
    found = []
    with open_trace(shared_workshop.trace) as trace:
        for step in trace.steps:
            columns = trace.columns(step.number)
            for row, site in enumerate(columns.site.tolist()):
                where = trace.sites[site].site
                if where.component.endswith("()"):
                    tensor = columns.kind[row] == 0
                    value = "tensor" if tensor else trace.scalar(columns, row)
                    found.append((where.component, where.field, value))
    return found


def told(rows: list[tuple[str, str, object]], component: str) -> list[tuple[str, object]]:
    return [(field, value) for name, field, value in rows if name == component]


def test_watched_functions_do_to_the_program_what_they_did(runs):
    """Values, random numbers, signatures, sources, pickles, tracebacks and warnings are the same;
    so is the exit status of a program that a watched call has ended."""
    plain, recorded = runs

    assert recorded.stdout == plain.stdout
    assert without_our_lines(recorded.stderr) == plain.stderr
    assert recorded.status == plain.status == 1


def test_a_call_is_seen_with_its_arguments_and_results_by_name(rows):
    """Of modules that were under way when torch was imported, of later ones and of the script."""
    assert told(rows, "first.jitter()")[:7] == [
        ("called", {"grad": True}), ("input[x]", "tensor"), ("input[strength]", 0.1),
        ("input[mode]", "add"), ("output[0]", "tensor"), ("ended", "returned"),
        ("called", {"grad": True}),
    ]  # fmt: skip
    assert told(rows, "later.Trainer.seed()")[:4] == [
        ("called", {"grad": True}), ("input[number]", 0), ("output", 0), ("ended", "returned"),
    ]  # fmt: skip
    assert told(rows, "later.Trainer.inherited()")[1:4] == [
        ("input[x]", 0), ("output[0]", 0), ("output[1][twice]", 0),
    ]  # fmt: skip
    assert ("output", None) in told(rows, "first.last()")
    assert told(rows, "later.Trainer.make()") == [
        ("called", {"grad": True}), ("ended", "returned"),
    ]  # fmt: skip


def test_a_call_that_ends_in_an_exception_says_so(rows):
    seen = [value for field, value in told(rows, "script.rescaled()") if field == "ended"]

    assert seen == ["returned", "returned", "raised KeyError", "returned"]


def test_what_happens_inside_a_call_lies_between_its_rows(runs, shared_workshop):
    with open_trace(shared_workshop.trace) as trace:
        columns = trace.columns(1)
        fields = [trace.sites[site].site for site in columns.site.tolist()]
        places = [str(site) for site in fields]
        lines = {entry.location for entry in trace.sites if str(entry.site).endswith("():called")}

    ended = places.index("scheduler:later.Trainer.step():ended")
    update = places.index("optimizer:weight:value")
    loss = places.index("loss:loss:value")
    assert loss < update < ended
    assert {line.partition(":")[0] for line in lines} == {"script.py"}


def test_names_that_are_not_watched_are_one_line_each_at_the_end(runs, shared_workshop):
    expected = {
        "later.Trainer.fetch": "is asynchronous, and is left alone",
        "later.Trainer": "is a class; name a method of it, such as __init__",
        "first.gone": "no such function was defined (first has none)",
        "nowhere.at_all": "no such function was defined (nowhere is not imported)",
    }

    assert our_lines(runs[1].stderr) == [
        f"traceparity: --watch {name}: {why}" for name, why in expected.items()
    ]
    with open_trace(shared_workshop.trace) as trace:
        noted = {each.component: each.reason for each in trace.not_observed}
    assert noted == {f"{name}()": why for name, why in expected.items()}


def test_a_name_without_a_module_is_a_mistake():
    with pytest.raises(SettingsError, match="__main__"):
        Settings(watch=("jitter",))
