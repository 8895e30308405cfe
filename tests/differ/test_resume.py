"""A resumed run against the steps of the run that was never interrupted."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import SNAPSHOT, STATE, Run, Seen, Step

from traceparity.differ.diff import diff_runs
from traceparity.differ.following import FollowingDiff
from traceparity.differ.policy import Align, Policy
from traceparity.differ.result import Outcome
from traceparity.tracefmt.growing import follow
from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import Flag, Phase

DECLARED = Policy(Align(kind="resume", step_offset=3))
AUTO = Policy(Align(kind="resume"))


def resumed(end: int = 6) -> list[Step]:
    return Run().steps(end, start=3)


@pytest.mark.parametrize("policy", [DECLARED, AUTO])
def test_a_good_resume_passes_with_declared_and_with_found_offset(bench, policy):
    result = bench.diff(Run().steps(6), resumed(), policy)

    assert result.outcome is Outcome.PASS
    assert result.alignment.step_offset == 3
    assert result.compared.steps == 3


def with_joiner(steps: list[Step], at: int) -> list[Step]:
    """A second scheduler begins at a step, which lists that one in full and nothing else."""
    steps[at].rows[:0] = [
        Seen(Phase.STATE, "scheduler[1].last_epoch", "value", 0, SNAPSHOT),
        Seen(Phase.STATE, "scheduler[1]", "class", "StepLR", Flag.CONTEXT),
    ]
    return steps


@pytest.mark.parametrize("joins", [1, 3])
def test_what_joins_a_run_later_resets_nothing_of_what_was_there_before(bench, joins):
    """At the seam of a resume least of all."""
    target = resumed()
    target[0].add(Phase.STATE, "scheduler[1].last_epoch", "value", 0, flags=SNAPSHOT)
    reference = with_joiner(Run().steps(6), joins)

    good = bench.diff(reference, target, AUTO)
    target[0].remove("state:optimizer[0]:exp_avg[head.weight]")
    bad = bench.diff(reference, target, DECLARED)

    assert good.outcome is Outcome.PASS, good.reason
    assert (bad.first.component, bad.first.field) == ("optimizer[0]", "exp_avg[head.weight]")
    assert (bad.first.step, bad.first.kind) == (3, "missing")


def test_a_scheduler_that_only_one_run_begins_with_later_is_no_seam(bench):
    assert bench.diff(Run().steps(6), with_joiner(Run().steps(6), 2)).outcome is Outcome.PASS


@pytest.mark.parametrize("unmatched", ["fail", "allow"])
def test_a_flag_is_told_with_its_old_value_whatever_joined_since(bench, unmatched):
    target = with_joiner(Run().steps(6), 2)
    target[4].add(Phase.STATE, "body.0", "training", False, flags=Flag.STATEFUL)
    policy = Policy(Align(unmatched=unmatched))

    first = bench.diff(with_joiner(Run().steps(6), 2), target, policy).first

    assert (first.step, first.component, first.kind) == (4, "body.0", "flag")
    assert (first.reference.plain, first.target.plain) == (True, False)


def test_the_offset_is_found_by_the_parameters(bench):
    assert bench.diff(Run().steps(6), resumed(), AUTO).alignment.how == "parameter digest"


def with_teacher(steps: list[Step], start: int, lost: bool) -> list[Step]:
    """A model that no optimizer holds, and that changes with each step; nothing counts them."""
    for number, step in enumerate(steps, start):
        value = np.full((9, 3), 0 if lost else number, np.float32)
        flags = STATE if number > start else SNAPSHOT
        step.rows[:0] = [Seen(Phase.STATE, "teacher.weight", "value", value, flags)]
    frozen = Seen(Phase.STATE, "teacher.weight", "requires_grad", False, SNAPSHOT)
    steps[0].rows.insert(1, frozen)
    return without_counts(without_schedule(steps))


@pytest.mark.parametrize("policy", [DECLARED, AUTO])
def test_a_teacher_that_was_lost_is_named_and_hides_no_seam(bench, policy):
    reference = with_teacher(Run().steps(6), 0, lost=False)

    good = bench.diff(reference, with_teacher(resumed(), 3, lost=False), policy)
    bad = bench.diff(reference, with_teacher(resumed(), 3, lost=True), policy)

    assert good.outcome is Outcome.PASS
    assert (bad.first.step, bad.first.component) == (3, "teacher.weight")


def test_weights_that_were_not_restored_are_found_where_the_update_count_points(bench):
    target = resumed()
    target[0].change("state:embed.weight:value", np.zeros((9, 3), np.float32))

    result = bench.diff(Run().steps(6), target, AUTO)

    assert result.alignment.how == "optimizer step count"
    assert (result.first.step, result.first.target_step) == (3, 0)
    assert result.first.component == "embed.weight"


def test_weights_that_stay_equal_are_told_apart_by_the_update_count(bench):
    def frozen(steps: list[Step]) -> list[Step]:
        for step in steps:
            for at, row in enumerate(step.rows):
                if row.field == "value" and row.component.endswith(".weight"):
                    step.rows[at] = replace(row, value=np.ones((9, 3), np.float32))
        return steps

    result = bench.diff(frozen(Run().steps(6)), frozen(resumed()), AUTO)

    assert result.outcome is Outcome.PASS
    assert result.alignment.how == "parameter digest and optimizer step count"


def test_no_clue_at_all_abstains_and_names_the_remedy(bench):
    target = resumed()
    for row in list(target[0].rows):
        if row.phase == Phase.STATE and isinstance(row.value, np.ndarray):
            target[0].change(row.site, np.full(row.value.shape, 7, row.value.dtype))

    result = bench.diff(Run().steps(6), target, AUTO)

    assert result.outcome is Outcome.ABSTAIN
    assert "--step-offset" in result.reason


@pytest.mark.parametrize(
    ("site", "value", "kind"),
    [
        ("state:head.weight:value", np.zeros((9, 3), np.float32), "value"),
        ("state:body.1.seen:value", np.array(99), "value"),
        ("state:body.0:training", False, "flag"),
        ("state:head.weight:requires_grad", False, "flag"),
        ("state:optimizer[0]:exp_avg[body.0.weight]", np.zeros((9, 3), np.float32), "value"),
        ("state:optimizer[0]:exp_avg[body.0.weight]", np.zeros((9, 3), np.float64), "dtype"),
        ("state:head.weight:group", "optimizer[0] group[1]", "flag"),
        ("state:optimizer[0] group[0]:lr", 0.1, "hyperparameter"),
        ("state:scheduler.last_epoch:value", 0, "value"),
    ],
)
def test_state_that_was_restored_wrongly_is_named_at_the_seam(bench, site, value, kind):
    target = resumed()
    target[0].change(site, value)

    first = bench.diff(Run().steps(6), target, DECLARED).first

    assert (first.step, first.target_step, first.kind) == (3, 0, kind)
    assert f"{first.phase}:{first.component}:{first.field}" == site


def test_state_that_was_not_restored_at_all_is_missing(bench):
    target = resumed()
    target[0].rows = [
        row for row in target[0].rows if "exp_avg" not in row.field or row.value is None
    ]
    target[0].rows = [row for row in target[0].rows if row.phase != Phase.OPTIMIZER] + [
        row for row in resumed()[0].rows if row.phase in (Phase.OPTIMIZER, Phase.SCHEDULER)
    ]

    first = bench.diff(Run().steps(6), target, DECLARED).first

    assert (first.step, first.phase, first.kind) == (3, "state", "missing")
    assert first.field == "exp_avg[embed.weight]"


def test_state_that_the_reference_never_had_is_extra(bench):
    target = resumed()
    target[0].rows.insert(
        8,
        replace(
            target[0].rows[target[0].find("state:optimizer[0]:exp_avg[head.weight]")],
            field="exp_avg_sq[head.weight]",
        ),
    )

    first = bench.diff(Run().steps(6), target, DECLARED).first

    assert (first.step, first.phase, first.kind) == (3, "state", "extra")


def test_a_difference_after_the_seam_is_named_with_both_step_numbers(bench):
    target = resumed()
    target[2].change("forward:body.0:output[0]", np.zeros((9, 3), np.float32))

    first = bench.diff(Run().steps(6), target, DECLARED).first

    assert (first.step, first.target_step, first.component) == (5, 2, "body.0")


def test_wrong_data_after_an_equal_state_happens_and_is_named(bench):
    target = resumed()
    target[0].change("data:loader[0]:sample_ids", [0, 1, 2, 3])

    first = bench.diff(Run().steps(6), target, DECLARED).first

    assert (first.step, first.phase, first.kind) == (3, "data", "sample_id")


def test_a_resumed_run_must_reach_the_end_of_the_reference(bench):
    result = bench.diff(Run().steps(6), resumed(5), DECLARED)

    assert result.outcome is Outcome.FAIL
    assert (result.first.step, result.first.field, result.first.kind) == (5, "step", "missing")


def test_a_resume_that_goes_beyond_the_reference_is_a_difference(bench):
    result = bench.diff(Run().steps(5), resumed(), DECLARED)

    assert (result.first.step, result.first.field, result.first.kind) == (5, "step", "extra")


def test_an_offset_beyond_the_reference_compares_nothing_and_abstains(bench):
    result = bench.diff(Run().steps(6), resumed(), Policy(Align(kind="resume", step_offset=40)))

    assert result.outcome is Outcome.ABSTAIN
    assert "lines up" in result.reason


def test_segments_are_aligned_one_after_the_other(bench):
    reference = bench.write(Run().steps(8))
    parts = [bench.write(Run().steps(stop, start)) for start, stop in ((0, 3), (3, 6), (6, 8))]

    result = diff_runs(reference, parts, Policy())

    assert result.outcome is Outcome.PASS
    assert result.compared.steps == 8


def test_a_fault_in_a_later_segment_is_found_at_its_reference_step(bench):
    reference = bench.write(Run().steps(8))
    second = Run().steps(8, 3)
    second[1].change("gradient:head.weight:grad", np.zeros((9, 3), np.float32))
    parts = [bench.write(Run().steps(3)), bench.write(second)]

    first = diff_runs(reference, parts, Policy()).first

    assert (first.step, first.target_step, first.phase) == (4, 1, "gradient")


def test_a_killed_segment_is_no_reason_to_abstain_when_the_next_one_goes_on(bench):
    reference = bench.write(Run().steps(8))
    parts = [bench.write(Run().steps(4), complete=False), bench.write(Run().steps(8, 3))]

    assert diff_runs(reference, parts, Policy()).outcome is Outcome.PASS


def without_counts(steps: list[Step]) -> list[Step]:
    """As an optimizer without a step count has it."""
    for step in steps:
        step.rows = [row for row in step.rows if not row.field.startswith("step[")]
    return steps


def without_schedule(steps: list[Step]) -> list[Step]:
    for step in steps:
        step.rows = [row for row in step.rows if not row.component.startswith("scheduler")]
    return steps


def with_first_weights(steps: list[Step]) -> list[Step]:
    for layer in ("embed", "body.0", "body.1", "head"):
        steps[0].change(f"state:{layer}.weight:value", Run().array("weight", layer, 0))
    return steps


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (list, "optimizer step count and schedule"),
        (without_counts, "optimizer state and schedule"),
        (without_schedule, "optimizer step count"),
        (lambda steps: without_counts(without_schedule(steps)), "optimizer state"),
    ],
)
def test_a_model_that_was_not_restored_under_a_fixed_seed_is_named_at_the_seam(bench, change, how):
    """Its parameters are those of the first step, which a run has without any checkpoint."""
    reference, target = change(Run().steps(6)), with_first_weights(change(resumed()))

    result = bench.diff(reference, target, AUTO)

    assert (result.alignment.step_offset, result.alignment.how) == (3, how)
    assert (result.first.step, result.first.component) == (3, "embed.weight")
    assert "yet its parameters are those of step 0" in result.notes[0]


def test_a_second_part_whose_model_was_not_restored_goes_on_where_the_first_ended(bench):
    paths = [bench.write(Run().steps(6)), bench.write(Run().steps(3))]
    paths.append(bench.write(with_first_weights(resumed())))

    result = diff_runs(paths[0], paths[1:], Policy())

    assert (result.first.step, result.first.part, result.first.component) == (3, 2, "embed.weight")
    note = "begins at reference step 3 (optimizer step count and schedule), yet its parameters are"
    assert result.notes == (f"part 2 of the target {note} those of step 0",)


def test_a_schedule_and_an_optimizer_that_were_not_restored_say_nothing_of_the_seam(bench):
    target = resumed()
    target[0].change("state:scheduler.last_epoch:value", 0)
    target[0].rows = [
        row for row in target[0].rows if row.phase != Phase.STATE or row.component != "optimizer[0]"
    ]

    result = bench.diff(Run().steps(6), target, AUTO)

    assert (result.alignment.step_offset, result.alignment.how) == (3, "parameter digest")
    assert (result.first.step, result.notes) == (3, ())


def test_parameters_of_another_checkpoint_than_the_counters_are_told_of(bench):
    """Two counters against one; one against one, the parameters are believed, with a doubt."""
    target = resumed()
    for layer in ("embed", "body.0", "body.1", "head"):
        target[0].change(f"state:{layer}.weight:value", Run().array("weight", layer, 2))

    both = bench.diff(Run().steps(6), target, AUTO)
    one = bench.diff(without_schedule(Run().steps(6)), without_schedule(target), AUTO)

    assert (both.alignment.step_offset, both.first.component) == (3, "embed.weight")
    assert (one.alignment.step_offset, one.first.component) == (2, "body.1.seen")
    assert "yet its optimizer step count is that of step 3" in one.notes[0]
    assert "--step-offset" in one.notes[0]


def test_a_second_part_that_begins_all_over_is_no_resume_of_the_first(bench):
    paths = [bench.write(Run().steps(6)), bench.write(Run().steps(2)), bench.write(Run().steps(6))]

    result = diff_runs(paths[0], paths[1:], Policy())

    assert result.outcome is Outcome.PASS
    assert result.notes == ("part 2 of the target begins at reference step 0 (parameter digest)",)


def second_optimizer(steps: list[Step], at: int, start: int = 0) -> list[Step]:
    """From a step on another optimizer holds all parameters, and another scheduler steps."""
    fresh, number = "optimizer[1]", at + start
    names = {"optimizer[0]": fresh, "optimizer[0] group[0]": f"{fresh} group[0]"}
    names |= {"scheduler.last_epoch": "scheduler[1].last_epoch", "scheduler": "scheduler[1]"}
    for step in steps[at:]:
        step.rows = [replace(r, component=names.get(r.component, r.component)) for r in step.rows]
    lists = [row for row in Run().steps(number + 1, number)[0].rows if row.flags & Flag.SNAPSHOT]
    steps[at].rows[:0] = [
        replace(
            row,
            component=names.get(row.component, row.component),
            value=f"{fresh} group[0]" if row.field == "group" else row.value,
        )
        for row in lists
        if row.field == "group" or row.component.startswith(("optimizer[0] group", "scheduler"))
    ]
    steps[at].add(Phase.STATE, "scheduler[1]", "class", "StepLR", flags=Flag.CONTEXT)
    return steps


@pytest.mark.parametrize("rename", [(), (("optimizer[1]", "optimizer[0]"),)])
@pytest.mark.parametrize("policy", [AUTO, DECLARED])
def test_an_optimizer_is_known_by_what_it_holds_and_not_by_its_number(bench, policy, rename):
    """The resumed run never had the first one, nor its scheduler."""
    policy = replace(policy, align=replace(policy.align, rename=rename))
    reference, target = second_optimizer(Run().steps(6), 2), resumed()
    for step in (*reference[2:], *target):
        # They count anew: another step of the first scheduler had the number, which says nothing.
        for at, row in enumerate(step.rows):
            if row.component.endswith(".last_epoch"):
                step.rows[at] = replace(row, value=row.value - 2)
    for step in reference[:2]:
        for at, row in enumerate(step.rows):
            if row.field.startswith("exp_avg["):
                momentum = row.field.replace("exp_avg", "momentum_buffer")
                step.rows[at] = replace(row, field=momentum)

    good = bench.diff(reference, target, policy)
    with open_trace(bench.write(reference)) as ours, follow(bench.write(target)) as theirs:
        live = FollowingDiff(0, ours, theirs, policy)
        while_it_goes_on = [live.judge(number) for number in theirs.grow()]
    target[0].change("state:optimizer[0]:exp_avg[head.weight]", np.zeros((9, 3), np.float32))
    bad = bench.diff(reference, target, policy)

    assert good.outcome is Outcome.PASS, good.reason
    assert len(good.notes) == 1
    assert "optimizer[1] is the target's optimizer[0]" in good.notes[0]
    assert not any(while_it_goes_on)
    assert (bad.first.step, bad.first.component) == (3, "optimizer[0]")
    assert bad.first.field == "exp_avg[head.weight]"


def test_a_resume_before_the_second_optimizer_has_the_numbers_of_the_reference(bench):
    reference = second_optimizer(Run().steps(6), 4)
    target = second_optimizer(resumed(), 1, start=3)

    assert bench.diff(reference, target, AUTO).outcome is Outcome.PASS


def test_optimizers_of_which_one_was_not_restored_keep_their_numbers(bench):
    """Two that hold the same parameters and both live: nothing is gone."""
    reference = Run().steps(6)
    for step in reference:
        step.rows[:0] = [
            replace(row, value="optimizer[1] group[0]")
            for row in Run().steps(1)[0].rows
            if row.field == "group"
        ]
        for layer in ("embed", "body.0", "body.1", "head"):
            step.add(Phase.STATE, f"{layer}.weight", "group", "optimizer[0] group[0]", flags=STATE)
    reference[0].add(Phase.STATE, "optimizer[1]", "ema[head.weight]", np.ones(9), flags=SNAPSHOT)

    first = bench.diff(reference, resumed(), AUTO).first

    assert (first.step, first.kind, first.component) == (3, "missing", "optimizer[1]")


def test_a_count_that_two_steps_begin_with_is_told_apart_by_the_schedule(bench):
    """As in a GAN, where each optimizer steps in its turn."""
    reference, target = Run().steps(6), resumed()
    for layer in ("embed", "body.0", "body.1", "head"):
        for step in (reference[3], target[0]):
            step.change(f"optimizer:optimizer[0]:step[{layer}.weight]", np.array(np.float32(3)))
    target[0].change("state:embed.weight:value", np.zeros((9, 3), np.float32))

    result = bench.diff(reference, target, AUTO)

    assert result.alignment.how == "optimizer step count and schedule"
    assert (result.first.step, result.first.component) == (3, "embed.weight")


def with_generator(steps: list[Step], joins: int) -> list[Step]:
    """A second model, used in every step, whose optimizer is listed where its turn comes."""
    aux, group = np.ones((2, 2), np.float32), "optimizer[1] group[0]"
    steps[0].add(Phase.STATE, "Aux.weight", "value", aux, flags=SNAPSHOT)
    steps[0].add(Phase.STATE, "Aux.weight", "requires_grad", True, flags=SNAPSHOT)
    steps[0].add(Phase.STATE, "Aux", "training", True, flags=SNAPSHOT)
    steps[joins].add(Phase.STATE, "Aux.weight", "group", group, flags=SNAPSHOT)
    steps[joins].add(Phase.STATE, group, "lr", 0.5, flags=SNAPSHOT)
    for step in steps:
        at = step.find("loss:loss:value")
        step.rows.insert(at, Seen(Phase.FORWARD, "Aux", "output[0]", aux))
    return steps


def test_an_optimizer_whose_turn_comes_after_the_seam_is_compared_there(bench):
    reference, target = with_generator(Run().steps(6), 0), with_generator(resumed(), 1)

    good = bench.diff(reference, target, AUTO)
    target[1].change("state:optimizer[1] group[0]:lr", 0.25)
    bad = bench.diff(reference, target, AUTO)

    assert good.outcome is Outcome.PASS, good.reason
    assert (bad.first.step, bad.first.field) == (4, "lr")
    assert (bad.first.reference.plain, bad.first.target.plain) == (0.5, 0.25)
