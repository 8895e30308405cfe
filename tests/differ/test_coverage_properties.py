"""Coverage in numpy says what a naive reading of the rules says, sample by sample."""

import contextlib
import json
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled import Batch, Epoch, write_run

from traceparity.differ import coverage_text
from traceparity.differ.coverage import judge_coverage
from traceparity.differ.coverage_json import coverage_data
from traceparity.differ.policy import Coverage
from traceparity.differ.report_json import jsonable
from traceparity.differ.sample_ids import SampleIds
from traceparity.differ.universe import Universe, span_of
from traceparity.tracefmt.reader import open_run

RULES = ("exactly_once", "at_least_once", "no_cross_rank_overlap", "expected_padding")
IDS = st.one_of(st.integers(-2, 9), st.sampled_from(["0", "1", "s14", "s4"]))
BATCHES = st.lists(st.lists(IDS, max_size=4), min_size=1, max_size=4)
RUNS = st.integers(1, 3).flatmap(
    lambda epochs: st.lists(
        st.lists(BATCHES, min_size=epochs, max_size=epochs), min_size=1, max_size=3
    )
)
UNIVERSES = st.one_of(
    st.lists(IDS, unique_by=lambda each: (type(each), each), max_size=8),
    st.tuples(st.integers(-3, 5), st.integers(-3, 12), st.sampled_from([1, 2, 3, -1, -2])),
)
RunIds = list[list[list[list[Any]]]]


@dataclass
class Naive:
    """The rules as `equivalence_checks.md` 4.6 has them, in loops."""

    violations: list[tuple[Any, ...]] = field(default_factory=list)

    def epoch(
        self, number: int, seen: list[tuple[int, Any]], rule: str, universe: list[Any], padding: int
    ) -> None:
        first: dict[Any, int] = {}
        had: set[tuple[int, Any]] = set()
        positions: Counter[int] = Counter()
        for rank, sample in seen:
            at, key = positions[rank], (type(sample), sample)
            positions[rank] += 1
            where = (number, rank, at)
            if rule == "no_cross_rank_overlap":
                if first.setdefault(key, rank) != rank:
                    self.violations.append(("overlap", sample, *where))
                continue
            if key in first:
                if rule == "exactly_once":
                    kind = "duplicate" if (rank, key) in had else "overlap"
                    self.violations.append((kind, sample, *where))
            elif not any(type(each) is type(sample) and each == sample for each in universe):
                self.violations.append(("unexpected", sample, *where))
            first.setdefault(key, rank)
            had.add((rank, key))
        if rule == "no_cross_rank_overlap":
            return
        missing = [each for each in universe if (type(each), each) not in first]
        for each in sorted(missing, key=natural):
            self.violations.append(("missing", each, number, None, None))
        counts = Counter((type(each), each) for _, each in seen)
        surplus = sum(
            counts[type(each), each] - 1 for each in universe if (type(each), each) in counts
        )
        if rule == "expected_padding" and surplus != padding:
            self.violations.append(("padding", None, number, None, None))


def natural(each: Any) -> tuple[int, int, int]:
    """Numbers, then texts: "0" and "1" before "s4" and "s14"."""
    if isinstance(each, int):
        return 0, 0, each
    return 1, int(each.startswith("s")), int(each.removeprefix("s"))


def write(folder: Path, ranks: RunIds) -> Path:
    passes = [[Epoch([Batch(ids) for ids in batches]) for batches in rank] for rank in ranks]
    return write_run(folder, *passes)


def in_order(ranks: RunIds, epoch: int) -> list[tuple[int, Any]]:
    """What was seen in an epoch: by step, then by rank."""
    placed = []
    for rank, epochs in enumerate(ranks):
        before = sum(len(batches) for batches in epochs[:epoch])
        for at, ids in enumerate(epochs[epoch]):
            placed += [(before + at, rank, number, each) for number, each in enumerate(ids)]
    placed.sort(key=lambda each: each[:3])
    return [(rank, each) for _, rank, _, each in placed]


@settings(max_examples=150, deadline=None)
@given(RUNS, UNIVERSES, st.sampled_from(RULES), st.integers(0, 4))
def test_every_rule_finds_what_a_naive_reading_of_it_finds(ranks, universe, rule, padding):
    expected = None
    known: list[Any] = []
    if rule != "no_cross_rank_overlap":
        spanned = isinstance(universe, tuple)
        expected = "range({}, {}, {})".format(*universe) if spanned else tuple(universe)
        known = list(range(*universe)) if spanned else universe
    declared = padding if rule == "expected_padding" else None
    naive = Naive()
    for epoch in range(len(ranks[0])):
        naive.epoch(epoch, in_order(ranks, epoch), rule, known, padding)

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        run = open_run(write(Path(folder), ranks))
        for trace in run.values():
            stack.enter_context(trace)
        report = judge_coverage([run], Coverage(rule, expected=expected, padding=declared))

    found = [
        (each.kind, each.sample_id, each.epoch)
        + ((each.seen.rank, each.seen.position) if each.seen else (None, None))
        for each in report.violations
    ]
    assert found == naive.violations
    assert report.violations_total == len(naive.violations)
    assert report.doubts == ()


@given(
    st.tuples(st.integers(-50, 50), st.integers(-50, 50), st.integers(-5, 5).filter(bool)),
    st.sets(st.integers(-60, 60)),
    st.integers(1, 8),
)
def test_a_span_is_the_set_of_its_members(parts, seen, most):
    universe = Universe("", span=span_of("range({}, {}, {})".format(*parts)))
    members, numbers = set(range(*parts)), np.array(sorted(seen), np.int64)

    held = universe.holds(numbers)

    assert numbers[held].tolist() == sorted(members & seen)
    assert universe.missing(numbers[held], most, SampleIds()) == sorted(members - seen)[:most]
    assert len(universe) == len(members)


@given(st.lists(st.one_of(st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=2))))
def test_every_id_comes_back_from_its_number_and_different_ids_have_different_ones(samples):
    ids = SampleIds()

    numbers = ids.numbers(samples)

    if any(each == [] for each in samples):
        assert numbers is None
    else:
        assert [ids.id_of(number) for number in numbers.tolist()] == samples
        assert ids.numbers(samples).tolist() == numbers.tolist()


ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 63), (1 << 64) - 1),
        st.floats(),
        st.text(max_size=3),
    ),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
ARRAYS = st.builds(
    lambda dtype, shape: np.ones(shape, dtype),
    st.sampled_from(["u1", "i8", "u8", "f4", "bool"]),
    st.lists(st.integers(0, 3), max_size=2).map(tuple),
)
STRANGE = st.builds(
    Batch,
    ids=ANYTHING,
    trained=st.booleans(),
    worker=ANYTHING,
    fields=st.dictionaries(
        st.sampled_from(["batch[row]", "batch[row][0]", "batch[row][7]", "batch[x]"]),
        st.one_of(ANYTHING, ARRAYS),
        max_size=3,
    ),
    keeps=st.booleans(),
    length=ANYTHING,
    listing=ANYTHING,
    evaluation=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(ANYTHING, st.lists(STRANGE, min_size=1, max_size=3)), min_size=1, max_size=3
    ),
    st.sampled_from(RULES),
    st.sampled_from(["sampler", "batch[row]"]),
    st.sampled_from(["epoch", "trace"]),
    st.sampled_from(["trained", "fetched"]),
)
def test_whatever_a_trace_says_of_its_batches_there_is_a_verdict(passes, rule, name, scope, count):
    """A sound file may hold values that no recorder writes."""
    padding = 1 if rule == "expected_padding" else None
    coverage = Coverage(rule, id=name, scope=scope, count=count, padding=padding)
    epochs = [Epoch(batches, recorded=recorded) for recorded, batches in passes]

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        run = open_run(write_run(Path(folder), epochs))
        for trace in run.values():
            stack.enter_context(trace)
        report = judge_coverage([run], coverage, reference=run)

    told = json.dumps(jsonable(coverage_data(report)), allow_nan=False)
    assert json.loads(told)["outcome"] == report.outcome.value
    assert coverage_text.reason(report)
    assert coverage_text.rows(report)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(12)), st.integers(1, 4), st.integers(1, 5))
def test_any_order_on_any_number_of_ranks_covers_exactly_once(order, world, size):
    ranks = [
        [[order[rank::world][at : at + size] for at in range(0, 12, size)]] for rank in range(world)
    ]

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        run = open_run(write(Path(folder), ranks))
        for trace in run.values():
            stack.enter_context(trace)
        report = judge_coverage([run], Coverage("exactly_once", expected="range(0, 12)"))

    assert (report.violations_total, report.doubts, report.observations) == (0, (), 12)
