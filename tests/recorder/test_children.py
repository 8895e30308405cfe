"""One trace for each process that trains: children, workers, launchers."""

import pytest
from workshop import Workshop, our_lines

CHILDREN = """
    import multiprocessing, os, torch
    from torch.utils.data import DataLoader, Dataset
    from training import train

    class Modules(Dataset):
        \"\"\"Its samples come out of a module that could be trained, in each worker.\"\"\"
        def __init__(self): self.module = None
        def __len__(self): return 4
        def __getitem__(self, index):
            if self.module is None:
                self.module = torch.nn.Linear(4, 4)
            return self.module(torch.full((4,), float(index))).detach()

    def nested():
        train(3)
        process = multiprocessing.get_context("fork").Process(target=train, args=(4,))
        process.start()
        process.join()

    def spawned(index):
        assert __name__ == "__mp_main__"
        train(6)

    if __name__ == "__main__":
        for _ in DataLoader(Modules(), 2, num_workers=1, multiprocessing_context="fork"): pass
        for _ in DataLoader(Modules(), 2, num_workers=1, multiprocessing_context="spawn"): pass
        fork = multiprocessing.get_context("fork")
        outer = fork.Process(target=nested)
        outer.start()
        outer.join()
        with fork.Pool(1) as pool:
            pool.apply(os.getpid)
        train(5)
        torch.multiprocessing.spawn(spawned, nprocs=2)
        print("end", outer.exitcode)
"""


@pytest.mark.slow
def test_children_that_train_have_traces_of_their_own(workshop: Workshop) -> None:
    """In the order of their first steps, complete, and nothing of workers that fetch data."""
    workshop.write("children.py", CHILDREN)

    done = workshop.record("children.py", options=("-v",))

    assert (done.status, done.stdout) == (0, "end 0\n"), done.stderr
    traces = sorted(workshop.trace.glob("*"))
    assert [trace.name for trace in traces] == [f"rank{rank}.trace" for rank in range(5)]
    told = [workshop.told(trace) for trace in traces]
    assert [len(each.steps) for each in told] == [3, 4, 5, 6, 6]
    assert [each.rank for each in told] == [0, 1, 2, 3, 4]
    assert all(each.complete for each in told)
    assert len(done.stderr.splitlines()) == 5
    assert all(" steps, " in line for line in our_lines(done.stderr))


SIBLINGS = """
    import multiprocessing, os, torch
    from training import train

    def child(barrier):
        barrier.wait()
        train(2)

    if __name__ == "__main__":
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()
        fork = multiprocessing.get_context("fork")
        barrier = fork.Barrier(8)
        processes = [fork.Process(target=child, args=(barrier,)) for _ in range(8)]
        for process in processes: process.start()
        for process in processes: process.join()
"""


def test_children_that_begin_at_once_do_not_take_each_others_place(workshop: Workshop) -> None:
    workshop.write("siblings.py", SIBLINGS)

    done = workshop.record("siblings.py")

    assert (done.status, done.stderr) == (0, "")
    told = [workshop.told(workshop.trace / f"rank{rank}.trace") for rank in range(8)]
    assert all(each.complete and each.steps == [0, 1] for each in told)
    assert [each.rank for each in told] == list(range(8))
    assert len(list(workshop.folder.glob("run.trace*"))) == 1


DISTRIBUTED = """
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from training import train

    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 4) + dist.get_rank()).mean().backward()
        optimizer.step()
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_the_ranks_of_a_launcher_name_the_files(workshop: Workshop) -> None:
    """And what one process trained before them in the same command is kept beside them."""
    workshop.write("distributed.py", DISTRIBUTED)
    workshop.write("before.py", "from training import train\ntrain(2)\n")
    workshop.write(
        "run.sh", "python before.py && OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 distributed.py"
    )

    done = workshop.record("bash", "run.sh")

    assert done.status == 0, done.stderr
    assert our_lines(done.stderr) == []
    told = {trace.name: workshop.told(trace) for trace in workshop.trace.glob("*")}
    assert {name: (each.rank, each.world, len(each.steps)) for name, each in told.items()} == {
        "rank0.trace": (0, 2, 3),
        "rank1.trace": (1, 2, 3),
        "rank2.trace": (0, 1, 2),
    }
    assert all(each.complete for each in told.values())
