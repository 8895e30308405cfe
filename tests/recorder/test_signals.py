"""Signals reach the recorded program as if nobody stood in between."""

import os
import pty
import select
import signal
import time
from collections.abc import Callable

import pytest
from workshop import Workshop, without_our_lines

COUNTING = """
    import signal, sys, time

    seen = []
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, name), lambda number, _: seen.append(number))
    print("ready", flush=True)
    deadline = time.monotonic() + 20
    while len(seen) < int(sys.argv[1]) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    print(*seen)
    sys.exit(5)
"""
SLEEPING = """
    import time

    print("ready", flush=True)
    time.sleep(20)
"""
ALL = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


def test_the_programs_own_handlers_see_each_signal_once(workshop: Workshop) -> None:
    workshop.write("counting.py", COUNTING)
    process = workshop.start("tp-record", "-o", workshop.trace, "--", "counting.py", str(len(ALL)))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    for name in ALL:
        process.send_signal(getattr(signal, name))
        time.sleep(0.05)
    stdout, _ = process.communicate(timeout=60)

    assert stdout.split() == [str(int(getattr(signal, name))) for name in ALL]
    assert process.returncode == 5


@pytest.mark.parametrize("name", ALL)
def test_a_program_without_handlers_ends_as_a_shell_would_show(
    name: str, workshop: Workshop
) -> None:
    number = int(getattr(signal, name))
    workshop.write("sleeping.py", SLEEPING)
    process = workshop.start("tp-record", "-o", workshop.trace, "--", "sleeping.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)

    assert process.returncode == 128 + number
    assert without_our_lines(stderr).endswith("KeyboardInterrupt\n" if name == "SIGINT" else "")


def test_what_nohup_ignores_stays_ignored(workshop: Workshop) -> None:
    program = (
        "import signal; print(*(signal.getsignal(n).name for n in (signal.SIGHUP, signal.SIGINT)))"
    )
    record = f'tp-record -o run.trace -- -c "{program}"'

    done = workshop.run("bash", "-c", f"trap '' HUP INT; {record}")

    assert done.stdout == "SIG_IGN SIG_IGN\n"


def read_until(terminal: int, done: Callable[[str], bool], seconds: float = 30) -> str:
    """What a terminal shows until it is as wanted, or its last process has gone."""
    text, deadline = "", time.monotonic() + seconds
    while not done(text) and (left := deadline - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                data = os.read(terminal, 4096)
            except OSError:
                break
            text += data.decode()
    return text


def test_a_key_at_the_terminal_is_seen_once(workshop: Workshop) -> None:
    """The terminal sends Ctrl-C to both of us; it must not come twice."""
    workshop.write("counting.py", COUNTING)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(workshop.folder)
        command = ["tp-record", "-o", "run.trace", "--", "counting.py", "2"]
        os.execvpe(command[0], command, workshop.environment())

    read_until(terminal, lambda text: "ready" in text)
    os.write(terminal, b"\x03")
    time.sleep(0.3)
    os.write(terminal, b"\x1c")
    text = read_until(terminal, lambda _: False)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)

    assert "2 3\r\n" in text
    assert status == 5
