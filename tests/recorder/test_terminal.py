"""What a person at a terminal sees of a recording, and nobody else."""

import os
import pty
import re
import select
import time

import pytest
from workshop import Workshop, our_lines

PROGRAM = """
    import time
    from training import train

    train(2)
    time.sleep(2.1)
    train(2)
    print("trained")
"""


def seen_at_a_terminal(workshop: Workshop, *command: str) -> str:
    """All that a process writes to a terminal of its own."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(workshop.folder)
        os.execvpe(command[0], list(command), workshop.environment())
    text, deadline = "", time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 1)[0]:
            try:
                text += os.read(terminal, 4096).decode()
            except OSError:  # the last process has closed it
                break
    os.waitpid(pid, 0)
    os.close(terminal)
    return text


@pytest.mark.slow
def test_a_terminal_shows_progress_and_a_closing_line(workshop: Workshop) -> None:
    """The progress is one line, written over by whatever comes next."""
    workshop.write("program.py", PROGRAM)

    text = seen_at_a_terminal(workshop, "tp-record", "-o", "run.trace", "--", "program.py")

    progress, output, closing = re.split(r"(trained\r\n)", text)
    assert re.fullmatch(r"(\r\x1b\[2Ktraceparity: \d steps?\r)+", progress)
    assert output == "trained\r\n"
    assert closing.startswith("\r\x1b[2Ktraceparity: 4 steps, ")
    assert closing.endswith(" % of the run)\r\n")
    assert len(closing.splitlines()) == 2


def test_without_a_terminal_one_line_is_said_when_asked(workshop: Workshop) -> None:
    workshop.write("program.py", PROGRAM)

    done = workshop.record("program.py", options=("-v",))

    (line,) = our_lines(done.stderr)
    assert done.stderr == f"{line}\n"
    size = workshop.trace.stat().st_size
    assert re.fullmatch(
        rf"traceparity: 4 steps, \d+ observations, {size:,} bytes in {workshop.trace}"
        r" \(recording took \d+\.\d s, \d+ % of the run\)",
        line,
    )
