"""A disk that fills up stops the recording with one line, and never the training."""

import os
import subprocess
from pathlib import Path

import pytest
from workshop import Workshop, our_lines

PROGRAM = """
    import gc, os, resource, sys, torch
    from training import train

    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()
    gc.freeze()
    for limit in map(int, sys.argv[1:]):
        pid = os.fork()
        if pid == 0:
            # Writing beyond it fails as on a full disk.
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            train(60)
            torch.nn.Linear(99, 99)
            print("trained")
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.mark.parametrize("capture", ["sketch", "values"])
def test_a_recording_that_cannot_go_on_stops_alone(capture: str, workshop: Workshop) -> None:
    """Once there is no room for a header, once for some steps, once for all but the index."""
    workshop.write("program.py", PROGRAM)
    limits = ["100", "20000", "1000000"]

    done = workshop.record("program.py", *limits, options=("-v", "--capture", capture))

    assert done.stdout.split() == ["trained", "3"] * 3
    first, second, third = done.stderr.splitlines()
    assert "File too large; the program goes on, nothing was recorded" in first
    assert "File too large; the program goes on, what was recorded can be read" in second
    assert "60 steps" in third
    part, whole = (workshop.told(workshop.trace / f"rank{rank}.trace") for rank in (0, 1))
    assert 0 < len(part.steps) < 60
    assert part.steps == list(range(len(part.steps)))
    assert not part.complete
    assert (len(whole.steps), whole.complete) == (60, True)


def mounted(folder: Path) -> bool:
    """Whether a file system of 64 kB could be had there, as root can in most places."""
    if os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_a_disk_that_is_really_full(workshop: Workshop) -> None:
    disk = workshop.folder / "disk"
    disk.mkdir()
    workshop.write("program.py", "from training import train\ntrain(200)\nprint('trained')\n")
    if not mounted(disk):
        pytest.skip("no file system can be mounted here")
    try:
        done = workshop.run("tp-record", "-o", disk / "a.trace", "--", "program.py")
        told = workshop.told(disk / "a.trace")
    finally:
        subprocess.run(["umount", str(disk)], check=True)

    assert (done.status, done.stdout) == (0, "trained\n")
    assert len(our_lines(done.stderr)) == 1
    assert "No space left on device" in done.stderr
    assert 5 < len(told.steps) < 200
    assert not told.complete
