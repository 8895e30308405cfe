"""A folder that somebody keeps locked stops the recording, and never the training."""

import fcntl
import os

import pytest

from traceparity.recorder import session_writer
from traceparity.recorder.session_writer import SessionWriter


def test_nobody_waits_for_a_lock_without_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(session_writer, "_PATIENCE", 0.05)
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    writer = SessionWriter(tmp_path, lambda: tmp_path / "x", lambda: None, lambda error: None)

    with pytest.raises(TimeoutError, match="another process keeps it locked"):
        writer.open()

    os.close(holder)
