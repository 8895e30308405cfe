"""Recording inside a test: a block of the test itself, or a command in a fresh process."""

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceparity.tracefmt.errors import TraceparityError

if TYPE_CHECKING:
    from traceparity.verify.execution import Execution


class Recorder:
    """Records trainings into the folder of one test.

    Called, it records a ``with`` block in this process; `run` records a command in a fresh one.
    """

    def __init__(self, folder: Path) -> None:
        """Take the folder for the traces."""
        self._folder = folder

    @contextlib.contextmanager
    def __call__(self, name: str = "run", **settings: Any) -> Iterator[Path]:
        """Record what is trained inside a ``with`` block, which gets the trace's path.

        Args:
            name: Names the trace among those of the test.
            settings: Capture settings: ``capture``, ``steps``, ``every``, ``phases``, ``include``,
                ``exclude``.

        Raises:
            TraceparityError: torch is missing, a setting or the name is wrong, or the trace exists.
        """
        _need_torch()
        from traceparity.recorder.session import record

        path = self._path(name)
        with record(path, **settings):
            yield path

    def run(
        self,
        *command: str | os.PathLike[str],
        name: str = "run",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **settings: Any,
    ) -> Path:
        """Record a command in a fresh process, and return its trace.

        Args:
            command: A script with its arguments, ``-m module``, or any command that starts Python.
            name: Names the trace among those of the test.
            cwd: Where it runs; None for the current folder.
            env: Variables to add to its environment.
            timeout: Seconds after which it is ended.
            settings: Capture settings, as for a block.

        Raises:
            AssertionError: It failed, took too long or trained nothing; the message has the end of
                what it wrote.
            TraceparityError: torch is missing, a setting or the name is wrong, or the trace exists.
        """
        __tracebackhide__ = True
        _need_torch()
        from traceparity.recorder.settings import settings_from
        from traceparity.verify.execution import run_recorded

        done = run_recorded(
            [os.fspath(word) for word in command],
            out=self._path(name),
            cwd=None if cwd is None else Path(cwd),
            env=env,
            timeout=timeout,
            settings=settings_from(settings, "run()"),
        )
        if not done.ok:
            raise AssertionError(_story(done))
        return done.trace

    def _path(self, name: str) -> Path:
        if Path(name).name != name:
            raise TraceparityError(f"{name!r} is no name of a trace: it would be a path")
        return self._folder / f"{name}.trace"


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise TraceparityError("torch is not installed here; pip install 'traceparity[torch]'")


def _story(done: "Execution") -> str:
    words = " ".join(done.command)
    parts = [f"{words}: {done.problem}"]
    for name, text in (("stdout", done.stdout_tail), ("stderr", done.stderr_tail)):
        if text:
            parts.append(f"-- end of its {name} --\n{text}")
    return "\n".join(parts)
