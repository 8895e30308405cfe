"""The session: recording from beginning to end, in this process."""

import contextlib
import functools
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch.utils.data._utils import worker

from traceparity._version import __version__
from traceparity.recorder import ending, environment, sketch
from traceparity.recorder.change_log import ChangeLog
from traceparity.recorder.destination import destination, process_groups, rank_and_world
from traceparity.recorder.exchanges import Exchanges
from traceparity.recorder.guard import Guard, warn
from traceparity.recorder.hooks import checkpoints, pipelining
from traceparity.recorder.hooks.backward import BackwardHooks
from traceparity.recorder.hooks.calls import CallHooks
from traceparity.recorder.hooks.collectives import CollectiveHooks
from traceparity.recorder.hooks.compiled import CompiledCalls
from traceparity.recorder.hooks.data import DataHooks
from traceparity.recorder.hooks.functional_collectives import FunctionalCollectiveHooks
from traceparity.recorder.hooks.gradients import GradientHooks, install_clipping
from traceparity.recorder.hooks.manual_updates import ManualUpdates
from traceparity.recorder.hooks.modules import ModuleHooks
from traceparity.recorder.hooks.optimizers import OptimizerHooks
from traceparity.recorder.hooks.point_to_point import PointToPointHooks
from traceparity.recorder.hooks.scaler import ScalerHooks
from traceparity.recorder.hooks.schedulers import SchedulerHooks
from traceparity.recorder.hooks.state import StateHooks
from traceparity.recorder.observe import digest_kinds
from traceparity.recorder.output import make_ready
from traceparity.recorder.patches import Patches
from traceparity.recorder.progress import Progress
from traceparity.recorder.recording import Recording
from traceparity.recorder.registry import Registry
from traceparity.recorder.session_writer import SessionWriter
from traceparity.recorder.settings import Settings, settings_from
from traceparity.recorder.window import Window
from traceparity.tracefmt.errors import TraceError, TraceExistsError
from traceparity.tracefmt.records import Header


class Session:
    """Records this process from `start` to `finish`.

    Attributes:
        left_by_fork: Whether it was under way when this process was forked from the recorded one.
    """

    def __init__(
        self,
        out: Path,
        settings: Settings,
        *,
        session: str = "",
        rank: int | None = None,
        shared: bool = False,
        verbose: bool = False,
    ) -> None:
        """Prepare; nothing is touched yet.

        Args:
            out: The trace file, or the folder of a run of several processes.
            settings: What to record.
            session: Identifies the recording among its processes.
            rank: This process's rank where neither torch nor the launcher says it.
            shared: Whether other processes of the same run may write beside this one.
            verbose: Whether to say on stderr how it went.
        """
        self._out = out.absolute()
        self._settings = settings
        self._session = session or uuid.uuid4().hex
        self._rank = rank
        self._shared = shared
        self._pid = os.getpid()
        self._ended = self._given_up = False
        self._surroundings: dict[str, Any] | None = None
        self.left_by_fork = False
        self._handles: list[Any] = []
        self.guard = Guard()
        self._writer = SessionWriter(
            self._out.parent, self._destination, self._header, self._give_up
        )
        self._progress = Progress(self._writer, self.guard, verbose=verbose)
        self._window = Window(settings, self._window_opens, self._write_part)
        self._recording = Recording(self._writer, settings, self.guard, self._window)
        self._patches = Patches(self.guard)
        self._make_hooks()

    def _make_hooks(self) -> None:
        recording = self._recording
        log = self._log = ChangeLog(recording)
        registry = Registry("optimizer", always_number=True)
        self._gradients = GradientHooks(recording)
        self._state = StateHooks(recording, log, self._gradients)
        self._schedulers = SchedulerHooks(recording, log, registry)
        self._optimizers = OptimizerHooks(
            recording, log, self._gradients, registry, self._state.owner_found,
            self._schedulers.elder_found,
        )  # fmt: skip
        self._scalers = ScalerHooks(recording, log, self._optimizers)
        self._data = DataHooks(recording)
        exchanges = self._exchanges = Exchanges(recording, log)
        self._exchanging = (
            CollectiveHooks(exchanges),
            PointToPointHooks(exchanges),
            FunctionalCollectiveHooks(exchanges),
        )
        self._calls = CallHooks(recording)
        self._backward = BackwardHooks(
            recording, self._state, self._data, self._gradients, self._optimizers
        )
        self._updates = ManualUpdates(recording, log, self._optimizers)
        self._modules = ModuleHooks(
            recording, self._data, self._state, self._optimizers, self._updates
        )

    def start(self) -> None:
        """Install all hooks."""
        self._modules.install(self._patches)
        CompiledCalls(self.guard, self._modules).install(self._patches)
        self._optimizers.install(self._patches)
        self._schedulers.install(self._patches)
        self._scalers.install(self._patches)
        self._backward.install(self._patches)
        self._data.install(self._patches)
        for hooks in self._exchanging:
            hooks.install(self._patches)
        self._handles = self._modules.operators.watch_passes(self._patches)
        install_clipping(self._recording, self._patches)
        checkpoints.install(self._recording, self._patches)
        pipelining.install(self._patches, self.guard)
        self._patches.replace(worker, "_worker_loop", _unrecorded)
        self._calls.install(self._patches)

    def finish(self, error: BaseException | None = None) -> None:
        """Write what is left and the index, and remove all hooks; a second call does nothing.

        Args:
            error: The exception that ended the program.
        """
        if self._ended or self._pid != os.getpid():
            return
        self._ended = True
        self.guard.hook(self._updates.finish)()
        was_active, self.guard.active = self.guard.active, False
        self._remove_hooks()
        self._gradients.remove()
        if was_active:
            with self.guard.lock, self._no_failure_reaches_the_program():
                self._finish_file(error)
        if was_active and not self._given_up:
            self._progress.end()

    def detach(self) -> None:
        """Stop without a word: a forked child holds a copy of its parent's session."""
        if not self._ended:
            self._ended = True
            self.left_by_fork = self._pid != os.getpid() and self.guard.active
            self.guard.active = False
            self._remove_hooks()

    def _remove_hooks(self) -> None:
        self._calls.remove()
        self._modules.remove()
        self._optimizers.remove()
        for handle in self._handles:
            handle.remove()
        self._patches.undo()

    def _finish_file(self, error: BaseException | None) -> None:
        self._data.finish()
        self._exchanges.finish()
        if error is not None and self._window.open and self._window.recording:
            self._recording.marker("program", "ended_by", ending.told(error))
        tail = self._window.open and not self._window.updated
        self._window.flush(tail=tail)
        if self._writer.path is not None:
            self._tell_unseen()
            faults = self.guard.faults
            reason = f"{faults} observations were lost to errors" if faults else ""
            self._writer.close(complete=not reason, reason=reason)
            if not self._writer.steps_written:
                # Values of evaluation activity, and no training that they would explain.
                self._writer.path.unlink(missing_ok=True)

    def _tell_unseen(self) -> None:
        for name, why in self._calls.unseen():
            self._writer.not_observed(f"{name}()", why)
            if self._writer.steps_written and not self._placed[0]:
                warn(f"--watch {name}: {why}")

    # -- callbacks of window and writer -------------------------------------------------------

    def _window_opens(self) -> None:
        recording = self._recording
        self._calls.look()
        for name, why in self._calls.refused.items():
            # At once, for who judges the run while it goes on; a repeated note counts once.
            self._writer.not_observed(f"{name}()", why)
        gone = recording.names.take_gone()
        gone |= self._optimizers.take_gone()
        gone |= self._schedulers.take_gone() | self._scalers.take_gone()
        if gone:
            recording.forget(gone)
            self._log.forget(gone)
            self._state.forget(gone)
        recording.observer.forget()
        self._modules.forget()
        self._gradients.forget(gone)
        if self._surroundings is None:
            self._surroundings = environment.environment()
        if recording.idle:
            recording.prelude.clear()
            return
        self._window.rows.extend(recording.prelude)
        recording.prelude.clear()
        self._state.window_opens()
        self._optimizers.window_opens()
        self._schedulers.window_opens()
        self._scalers.window_opens()

    def _write_part(self, tail: bool, last: bool) -> None:
        if self._given_up:
            return
        with self._no_failure_reaches_the_program():
            self._recording.settle()
            self._log.settle()
            self._writer.write(
                self._window.number,
                self._window.rows,
                last=last,
                tail=tail,
                micro_batches=self._window.micro_batches,
            )
            self._progress.step()

    @contextlib.contextmanager
    def _no_failure_reaches_the_program(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - nobody above could do anything about it
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Stop, since nothing can be written; the training goes on, the file stays readable."""
        if self._given_up:
            return
        self._given_up = True
        self.guard.active = False
        what, kept = self._cause(error), "nothing was recorded"
        if self._writer.path is not None:
            kept = "what was recorded can be read"
            with contextlib.suppress(OSError, TraceError):
                self._writer.close(complete=False, reason=what)
        self._writer.abandon()
        self._progress.clear()
        warn(f"recording stopped: {what}; the program goes on, {kept}")

    def _cause(self, error: Exception) -> str:
        if isinstance(error, OSError):
            return f"{self._out}: {error.strerror or error}"
        if isinstance(error, TraceError | TraceExistsError):
            return str(error)
        return f"{self._out}: {type(error).__name__}: {error}"

    def _destination(self) -> Path:
        path = self._out
        rank, world = rank_and_world()
        if self._rank is not None and world == 1:
            rank = self._rank
        if self._shared:
            path, rank = destination(self._out, rank, world)
        self._placed = rank, world
        return path

    def _header(self) -> Header:
        rank, world = self._placed
        name, arguments = environment.program()
        capture = {
            **self._settings.as_data(),
            "digest": digest_kinds(self._settings.capture),
            "sketch": sketch.KIND if self._settings.capture != "digest" else "",
            "traceparity": __version__,
        }
        return Header(
            program=name,
            arguments=arguments,
            process=environment.process(),
            rank=rank,
            world_size=world,
            versions=environment.versions(),
            environment=self._surroundings or environment.environment(),
            capture=capture,
            session=self._session,
            groups=process_groups(),
        )


_current: Session | None = None


def begin(session: Session) -> Session:
    """Start a session as the one of this process.

    Raises:
        RuntimeError: Another one is running.
    """
    global _current  # torch has one set of global hooks, so has this process
    _check_that_none_runs()
    _detach_in_forked_children()
    _current = session
    try:
        session.start()
    except BaseException:
        session.finish()
        raise
    return session


def current() -> Session | None:
    """The session of this process."""
    return _current


def _check_that_none_runs() -> None:
    if _current is not None and _current.guard.active:
        raise RuntimeError("a recording is already running in this process")


@functools.cache
def _detach_in_forked_children() -> None:
    os.register_at_fork(after_in_child=_detach)


def _detach() -> None:
    if _current is not None:
        _current.detach()


def _unrecorded(worker_loop: Callable[..., None]) -> Callable[..., None]:
    # Whatever modules a loader's worker calls to make its samples, it trains nothing.
    @functools.wraps(worker_loop)
    def loop(*args: Any, **kwargs: Any) -> None:
        _detach()
        worker_loop(*args, **kwargs)

    return loop


@contextlib.contextmanager
def record(
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    settings: Mapping[str, Any] | Settings | None = None,
    **options: Any,
) -> Iterator[Session]:
    """Record what is trained inside the ``with`` block, or in a function that it decorates.

    Args:
        path: The trace file to write.
        overwrite: Whether it may replace a trace that exists.
        settings: Capture settings, as in ``[tool.traceparity]``.
        options: Single settings: ``capture``, ``steps``, ``every``, ``phases``, ``include``,
            ``exclude``.

    Raises:
        TraceExistsError: The file exists and may not be overwritten.
        SettingsError: A setting is wrong.
        OSError: The file cannot be written.
        RuntimeError: Another recording is running in this process.
    """
    base = settings if isinstance(settings, Settings) else settings_from(settings or {}, "settings")
    chosen = settings_from(options, "record()", base)
    _check_that_none_runs()
    make_ready(Path(path), overwrite=overwrite)
    session = begin(Session(Path(path), chosen))
    try:
        yield session
    except BaseException as error:
        session.finish(error)
        raise
    finally:
        session.finish()
