"""Full-batch trainings against micro-batched ones: right ones pass, each fault is at its place."""

import pytest

from traceparity.differ.diff import diff_runs
from traceparity.differ.policy import Align, Policy, Rule
from traceparity.differ.result import DiffResult, Outcome

CLOSE = (Rule("*", rtol=1e-4, atol=1e-6),)
NEAR = (Rule("*", rel_l2=1e-4),)


@pytest.fixture
def compare(recorded):
    def compare(
        reference: str,
        target: str,
        microbatches: tuple[int, int] = (1, 4),
        rules: tuple[Rule, ...] = CLOSE,
        capture: str = "values",
        **align: str,
    ) -> DiffResult:
        declared = Align(kind="accumulation", microbatches=microbatches, **align)
        traces = recorded(reference, capture), recorded(target, capture)
        return diff_runs(traces[0], [traces[1]], Policy(declared, rules))

    return compare


def place(result: DiffResult) -> str:
    first = result.first
    return first and f"{first.step} {first.phase}:{first.component}:{first.field}"


def details(result: DiffResult) -> str:
    return "\n".join(each.detail for each in result.first.evidence)


@pytest.mark.parametrize(
    ("reference", "target", "microbatches"),
    [
        ("", "--parts 4", (1, 4)),
        ("", "--parts 2", (1, 2)),
        ("", "--uneven", (1, 3)),
        ("--parts 2", "--uneven", (2, 3)),
        ("--parts 4", "", (4, 1)),
        ("--optimizer adamw", "--parts 4 --optimizer adamw", (1, 4)),
        ("--model tied", "--parts 4 --model tied", (1, 4)),
        ("--amp", "--parts 4 --amp", (1, 4)),
        ("", "--parts 4 --amp", (1, 4)),
    ],
)
def test_a_right_accumulation_passes_and_all_phases_are_compared(
    compare, reference, target, microbatches
):
    """The last update of the epoch is short: four samples in two micro-batches of the four."""
    result = compare(reference, target, microbatches)

    assert result.outcome is Outcome.PASS, (result.reason, place(result))
    assert result.compared.steps == 6
    assert result.compared.observations > 300


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_sketches_are_enough_where_the_limit_is_a_relative_distance(compare, optimizer):
    words = f"--optimizer {optimizer}"

    result = compare(words, f"--parts 4 {words}", rules=NEAR, capture="sketch")

    assert result.outcome is Outcome.PASS, (result.reason, place(result))
    assert any("their values were not kept" in note for note in result.notes)


def test_losses_that_are_averaged_pass_as_declared_and_fail_as_a_sum(compare):
    words = "--divide-by samples"

    averaged = compare(words, f"--parts 4 {words}", loss="mean")
    summed = compare(words, f"--parts 4 {words}")

    assert averaged.outcome is Outcome.PASS, place(averaged)
    assert any("backward" in note for note in averaged.notes)
    assert place(summed) == "0 loss:loss:value"


def test_losses_weighted_by_tokens_pass_as_declared(compare):
    words = "--divide-by own"
    weight = "batch[1] != -100"

    by_tokens = compare(words, f"--uneven {words}", (1, 3), loss="weighted", loss_weight=weight)
    by_samples = compare(words, f"--uneven {words}", (1, 3), loss="weighted")

    assert by_tokens.outcome is Outcome.PASS, place(by_tokens)
    assert place(by_samples) == "0 loss:loss:value"


@pytest.mark.parametrize(
    ("reference", "fault", "where", "evidence"),
    [
        ("", "scheduler-each", "0 optimizer:optimizer[0] group[0]:lr", "3 of them before the"),
        (
            "--step-size 30",
            "scheduler-each",
            "0 scheduler:scheduler.last_epoch:value",
            "stepped once in this step of the reference, 4 times in the target",
        ),
        ("", "clip-each", "0 backward:embed.weight:grad", "calls before, in this step: 0 against"),
        ("", "zero-after", "0 gradient:embed.weight:grad", "never in the reference, once in the"),
        ("", "zero-between", "0 backward:embed.weight:grad", "never in the reference, 3 times in"),
        ("", "undivided", "0 loss:loss:value", "3.98 times the reference's, with 4 micro-batches"),
        ("", "mean-of-means", "0 loss:loss:value", "micro-batches of the target: losses 0.66"),
        ("--amp", "unscale-after-clip", "0 gradient:embed.weight:grad", "that were still scaled"),
        ("", "step-each", "0 data:update:micro_batches", "took 1 micro-batch in update 0, 4 decl"),
        ("", "omit-last", "0 data:update:micro_batches", "8 samples in the reference against 6"),
        ("", "other-order", "0 data:loader[0]:batch[0]", "sample IDs [32, 15, 37"),
        ("", "no-zero", "1 backward:embed.weight:grad", "random state"),
        ("--model batchnorm", "", "0 forward:norm.running_mean:value", "forward:norm:input[0] (eq"),
    ],
)
def test_a_fault_is_named_at_its_place(compare, reference, fault, where, evidence):
    target = f"--parts 4 {reference} --fault {fault}" if fault else f"--parts 4 {reference}"

    result = compare(reference, target)

    assert result.outcome is Outcome.FAIL, result.reason
    assert place(result) == where
    assert evidence in details(result)


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        ("clip-each", "0 backward:embed.weight:grad"),
        ("zero-after", "0 gradient:embed.weight:grad"),
        ("mean-of-means", "0 loss:loss:value"),
        ("other-order", "0 data:loader[0]:batch[0]"),
    ],
)
def test_faults_are_found_without_values_too(compare, fault, where):
    result = compare("", f"--parts 4 --fault {fault}", rules=NEAR, capture="sketch")

    assert place(result) == where


def test_a_free_order_compares_the_samples_as_a_set(compare):
    same = compare("", "--parts 4", order="free")
    other = compare("", "--parts 4 --fault other-order", order="free")

    assert same.outcome is Outcome.PASS, place(same)
    assert any("the order of samples is free" in note for note in same.notes)
    assert place(other) == "0 data:loader[0]:batch[0]"


def test_another_count_than_declared_is_named_with_step_and_count(compare):
    result = compare("", "--parts 4", (1, 2))

    assert result.outcome is Outcome.FAIL
    assert "the target took 4 micro-batches in update 0, 2 declared" in result.reason


def test_without_a_declared_count_nothing_is_judged(recorded):
    policy = Policy(Align(kind="accumulation"), CLOSE)

    result = diff_runs(recorded(""), [recorded("--parts 4")], policy)

    assert result.outcome is Outcome.ABSTAIN
    assert "--microbatches N:M; the first update has 1 in the reference and 4" in result.reason


def test_a_loss_left_out_by_the_policy_leaves_the_gradients_to_judge(compare):
    result = compare("", "--parts 4 --fault mean-of-means", loss="skip")

    assert place(result) == "0 backward:head:grad_output[0]"
