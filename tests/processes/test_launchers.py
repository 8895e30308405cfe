"""Whatever starts the processes of a training: one trace for each that trains, none of others."""

import sys
from pathlib import Path

import pytest
from workshop import Workshop

from traceparity.tracefmt.reader import open_trace
from traceparity.tracefmt.records import ProcessGroup

PROGRAM = """
    import os, signal, sys
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    def train(killed=-1):
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        data = TensorDataset(torch.arange(24.0).view(12, 2))
        sampler = DistributedSampler(data, shuffle=False)
        model = DistributedDataParallel(torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for step, (rows,) in enumerate(DataLoader(data, 2, sampler=sampler, num_workers=1)):
            optimizer.zero_grad()
            model(rows).mean().backward()
            optimizer.step()
            if step == 1 and rank == killed:
                os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
        dist.destroy_process_group()

    def main():
        train()
        print("trained", os.environ["RANK"], sys.argv[1:])

    if __name__ == "__main__":
        main()
"""
CONSOLE_SCRIPT = f"#!{sys.executable}\nfrom program import main\nmain()\n"
WORLD = (ProcessGroup("default_pg", (0, 1), "gloo"),)
TORCHRUN = "python -m torch.distributed.run --standalone --nproc-per-node=2"
LAUNCHERS = {
    "torchrun": f"{TORCHRUN} program.py --lr 1",
    "torchrun, console script": f"{TORCHRUN} --no-python bin/train --lr 1",
    "accelerate": (
        "python -m accelerate.commands.launch --multi_gpu --num_processes=2 --num_machines=1"
        " --mixed_precision=no --dynamo_backend=no program.py --lr 1"
    ),
}


FREE_PORT = """
    import socket
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        print(listener.getsockname()[1])
"""


@pytest.fixture
def programs(workshop: Workshop) -> Workshop:
    workshop.write("program.py", PROGRAM)
    workshop.write("bin/train", CONSOLE_SCRIPT, mode=0o755)
    return workshop


def ranks(workshop: Workshop) -> dict[str, tuple[int, int, int, bool]]:
    """Rank, world size, number of steps and completeness by file name."""
    found = {}
    for path in sorted(workshop.trace.glob("*")):
        told = workshop.told(path)
        found[path.name] = told.rank, told.world, len(told.steps), told.complete
    return found


def groups(path: Path) -> tuple[ProcessGroup, ...]:
    with open_trace(path) as trace:
        return trace.header.groups


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_gives_a_trace_for_each_rank(launcher: str, programs: Workshop) -> None:
    if launcher == "accelerate":
        pytest.importorskip("accelerate")
    command = LAUNCHERS[launcher].split()

    done = programs.run(
        "tp-record", "-o", programs.trace, "--", *command,
        variables={"PYTHONPATH": str(programs.folder), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip

    assert done.status == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"trained {n} ['--lr', '1']" for n in (0, 1)]
    assert ranks(programs) == {
        "rank0.trace": (0, 2, 3, True),
        "rank1.trace": (1, 2, 3, True),
    }
    assert groups(programs.trace / "rank1.trace") == WORLD


@pytest.mark.slow
def test_a_rank_that_is_killed_leaves_its_steps_and_the_others_theirs(programs: Workshop) -> None:
    """Each rank is started on its own by a shell script, which waits for both."""
    programs.write("killed.py", "import program\nprogram.train(killed=1)\n")
    programs.write("port.py", FREE_PORT)
    programs.write(
        "run.sh",
        """
        export MASTER_ADDR=127.0.0.1 WORLD_SIZE=2 OMP_NUM_THREADS=1
        export MASTER_PORT=$(python port.py)
        RANK=0 python killed.py 2> rank0.err & RANK=1 python killed.py
        echo "killed: $?"
        wait
        """,
    )  # fmt: skip

    done = programs.record("bash", "run.sh")

    assert done.stdout == "killed: 137\n", done.stderr
    found = ranks(programs)
    assert set(found) == {"rank0.trace", "rank1.trace"}
    assert found["rank1.trace"] == (1, 2, 2, False)
    # The other one saw its peer go, in the midst of the third step or before.
    assert found["rank0.trace"][:2] == (0, 2)
    assert found["rank0.trace"][2] >= 2
    assert "Error" in (programs.folder / "rank0.err").read_text()


SPAWNED = """
    import os, torch, torch.distributed as dist, torch.multiprocessing as mp
    from training import train

    def child(rank, store):
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
        train(2)
        dist.destroy_process_group()

    if __name__ == "__main__":
        mp.spawn(child, args=(os.path.abspath("store"),), nprocs=2)
"""


@pytest.mark.slow
def test_spawned_processes_are_told_apart_by_the_ranks_that_they_take(programs: Workshop) -> None:
    programs.write("spawned.py", SPAWNED)

    done = programs.record("spawned.py")

    assert done.status == 0, done.stderr
    assert ranks(programs) == {
        "rank0.trace": (0, 2, 2, True),
        "rank1.trace": (1, 2, 2, True),
    }
    assert groups(programs.trace / "rank0.trace") == WORLD
