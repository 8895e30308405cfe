"""Ctrl-C at any moment, also inside our hooks, leaves a whole trace of sound steps."""

import json

import pytest
from workshop import Workshop

from traceparity.tracefmt.reader import open_trace

PROGRAM = """
    import json, os, random, signal, sys, time
    import torch
    from torch import nn
    import traceparity
    import traceparity.recorder.session

    def train_until_interrupted(trace, pipe):
        torch.manual_seed(0)
        torch.set_num_threads(1)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        with traceparity.record(trace):
            while True:
                loss = model(torch.randn(4, 8)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                os.write(pipe, b"u")

    torch.optim.AdamW([torch.zeros(1, requires_grad=True)]).zero_grad()
    moments = random.Random(7)
    for number in range(int(sys.argv[1])):
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            try:
                train_until_interrupted(f"{number}.trace", theirs)
            except KeyboardInterrupt:
                os._exit(0)
            finally:
                os._exit(1)
        os.read(ours, 1)
        time.sleep(moments.uniform(0, 0.2))
        os.kill(pid, signal.SIGINT)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(theirs)
        updates = 1 + len(os.read(ours, 1 << 16))
        os.close(ours)
        print(json.dumps([status, updates]), flush=True)
"""
TRIES = 40


@pytest.mark.slow
def test_an_interrupt_at_any_moment_leaves_a_whole_trace(workshop: Workshop) -> None:
    done = workshop.run("python", workshop.write("program.py", PROGRAM), str(TRIES))
    assert done.status == 0, done.stderr
    assert done.stderr == ""
    endings = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(endings) == TRIES

    digests: list[list[tuple[bytes, ...]]] = []
    for number, (status, updates) in enumerate(endings):
        assert status == 0
        told = workshop.told(workshop.folder / f"{number}.trace")
        assert told.complete
        assert told.steps == list(range(len(told.steps)))
        assert len(told.steps) >= updates
        with open_trace(workshop.folder / f"{number}.trace") as trace:
            digests.append([step.phase_digests for step in trace.steps[: updates - 1]])

    longest = max(digests, key=len)
    assert len(longest) > 3, "the recordings were hardly begun"
    assert all(each == longest[: len(each)] for each in digests)
