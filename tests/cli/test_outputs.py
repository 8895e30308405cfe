"""Reports in files are there as a whole, or as they were before."""

import os

import click
import pytest

from traceparity.cli.outputs import clear_outputs, write_report, write_reports


def test_a_report_takes_the_place_of_the_one_before(tmp_path):
    path, link = tmp_path / "r.json", tmp_path / "latest.json"
    path.write_text("before")
    path.chmod(0o644)
    link.symlink_to(path)

    write_report("after", link)

    assert path.read_text() == "after"
    assert link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["latest.json", "r.json"]


def test_a_report_that_cannot_be_written_whole_leaves_the_one_before(tmp_path):
    path = tmp_path / "r.json"
    path.write_text("before")

    with pytest.raises(UnicodeEncodeError):
        write_report("half of it \ud800", path)

    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["r.json"]


def test_reports_of_an_earlier_run_are_removed_and_nothing_else(tmp_path):
    path, link, pipe = tmp_path / "r.json", tmp_path / "latest.json", tmp_path / "pipe"
    path.write_text("before")
    link.symlink_to(path)
    os.mkfifo(pipe)

    clear_outputs([("json", link), ("text", pipe), ("junit", tmp_path / "none"), ("github", None)])

    assert sorted(each.name for each in tmp_path.iterdir()) == ["latest.json", "pipe"]
    assert link.is_symlink()


def test_reports_in_files_are_written_also_where_nobody_reads_stdout(tmp_path, monkeypatch):
    class Gone:
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Gone())
    outputs = [("text", None), ("json", tmp_path / "r.json")]

    with pytest.raises(BrokenPipeError):
        write_reports(outputs, lambda name, path: name, lambda: "")

    assert (tmp_path / "r.json").read_text() == "json"


def test_a_report_may_go_to_what_is_no_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    write_report("to a pipe", pipe)

    assert os.read(reader, 100) == b"to a pipe"
    os.close(reader)


def test_a_place_where_no_report_can_be_is_told(tmp_path):
    with pytest.raises(click.ClickException, match=r"cannot write .*No such file or directory"):
        write_report("text", tmp_path / "missing" / "r.json")
