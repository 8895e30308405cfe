"""What a trace says of a program that an exception ended."""

from traceparity.differ.ending import ended_by
from traceparity.tracefmt.reader import open_trace


def ended(workshop, text: str, *, status: int) -> str:
    workshop.write("program.py", "from training import train\n" + text)
    done = workshop.record("program.py")
    assert done.status == status, done.stderr
    with open_trace(workshop.trace) as trace:
        assert trace.complete
        assert [entry.number for entry in trace.steps] == [0, 1, 2]
        return ended_by(trace)


def test_the_exception_that_ended_a_program_is_in_its_last_step(workshop):
    text = 'train(3)\nraise RuntimeError("the disk is full\\nand more")\n'

    assert ended(workshop, text, status=1) == "RuntimeError: the disk is full"


def test_a_program_that_came_to_its_end_or_exited_says_nothing(workshop):
    assert ended(workshop, "train(3)\n", status=0) == ""


def test_an_exception_that_was_caught_is_no_end(workshop):
    text = (
        "train(3)\ntry:\n    raise ValueError\nexcept ValueError:\n    pass\nraise SystemExit(4)\n"
    )

    assert ended(workshop, text, status=4) == ""
