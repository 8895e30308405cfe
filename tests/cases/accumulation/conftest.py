"""Recordings of one training, each a fork of this process, which has imported torch once."""

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

# Test modules are no package, so what they share is found by path.
sys.path.insert(0, str(Path(__file__).parent))


def record(words: str, out: Path, capture: str) -> None:
    """Train in a forked child; the recorder attaches in it as `tp-record` makes it attach."""
    import accumulating

    from traceparity.recorder import attach, session

    error = out.with_suffix(".error")
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, error.read_text()
        return
    status = 1
    try:
        settings = {"capture": capture}
        order = {"out": str(out), "settings": settings, "session": "s", "rank": None}
        os.environ["TRACEPARITY_RECORD"] = json.dumps({**order, "verbose": False})
        warnings.simplefilter("ignore")
        attach.attach()
        accumulating.train(accumulating.arguments(words.split()))
        session.current().finish()
        status = 0
    except BaseException:  # noqa: BLE001 - the parent raises it again
        error.write_text(traceback.format_exc())
    finally:
        os._exit(status)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The trace of a training with these options; each is recorded once."""
    import accumulating

    # All forks share what optimizers import; training here would start threads, which are not.
    accumulating.make_optimizer("sgd", accumulating.Model("plain"))
    folder = tmp_path_factory.mktemp("accumulation")
    known: dict[tuple[str, str], Path] = {}

    def recorded(words: str = "", capture: str = "values") -> Path:
        key = (words, capture)
        if key not in known:
            known[key] = folder / f"{len(known)}.trace"
            record(words, known[key], capture)
        return known[key]

    return recorded
