"""Commands refuse what they could not use before they work, and leave no half of a file."""

from __future__ import annotations

import json
import os

import pytest

from nkibook import bench, bench_cases, device, options
from nkibook.bench import Kind, Record
from nkibook.validation import __main__ as validation
from nkisim.report import files

COMMANDS = {"bench": bench.main, "device": device.main, "validation": validation.main}


@pytest.fixture(autouse=True)
def no_work(monkeypatch):
    """No command gets to its work."""

    def work(*args, **kwargs):
        raise AssertionError("the command has begun to work")

    monkeypatch.setattr(bench_cases, "cases", work)
    monkeypatch.setattr(device, "launches", work)
    monkeypatch.setattr(validation, "evaluate", work)


def refused(capsys, command, *argv):
    with pytest.raises(SystemExit) as ended:
        COMMANDS[command]([*argv])
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_cannot_be_written_is_told_before_the_work(command, tmp_path, capsys):
    missing = tmp_path / "missing" / "r.json"
    assert "there is no folder" in refused(capsys, command, "--json", str(missing))
    assert "is a folder" in refused(capsys, command, "--json", str(tmp_path))
    assert "has no name" in refused(capsys, command, "--json", "")
    (tmp_path / "file").touch()
    assert "no folder" in refused(capsys, command, "--json", str(tmp_path / "file" / "r.json"))
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_or_a_file_without_permission_is_told(tmp_path, capsys, monkeypatch):
    """As root every file can be written: the system's answers are replaced."""

    def refuse(**kwargs):
        raise PermissionError(13, "Permission denied")

    there = tmp_path / "r.json"
    there.write_text("before")
    monkeypatch.setattr(options.tempfile, "TemporaryFile", refuse)
    message = refused(capsys, "bench", "--json", str(tmp_path / "new.json"))
    assert f"cannot be written in '{tmp_path}': Permission denied" in message
    monkeypatch.undo()
    monkeypatch.setattr(options.os, "access", lambda path, mode: False)
    assert "cannot be written: no permission" in refused(capsys, "bench", "--json", str(there))
    assert there.read_text() == "before"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_can_be_written_is_left_to_the_end(command, tmp_path):
    there = tmp_path / "r.json"
    there.write_text("before")
    for path in (there, tmp_path / "new.json"):
        with pytest.raises(AssertionError, match="begun to work"):
            COMMANDS[command](["--json", str(path)])
    assert there.read_text() == "before"
    assert list(tmp_path.iterdir()) == [there]


@pytest.mark.parametrize("number", ["0", "-3", "x", "1.5"])
def test_the_number_of_rounds_is_from_one_on(number, capsys):
    message = refused(capsys, "bench", f"--iters={number}")
    assert f"argument --iters: {number!r} is not a whole number from 1 on" in message


def test_names_of_points_that_there_are_not_are_told(capsys):
    message = refused(capsys, "validation", "add", "nosuch")
    assert "no point is named like 'nosuch'; there are " in message
    assert "GIOU" in message or "matmul" in message


def test_measurements_to_compare_have_to_be_there(tmp_path, capsys):
    path = tmp_path / "r.json"
    assert "cannot be read" in refused(capsys, "device", "--compare", str(path))
    for text in ("", "{}x", "[1]", '{"label": 1}', '[{"label": "x"}]'):
        path.write_text(text)
        assert "no list of records" in refused(capsys, "device", "--compare", str(path))
    assert "not allowed with" in refused(
        capsys, "device", "--compare", str(path), "--json", str(tmp_path / "new.json")
    )


def test_an_error_while_writing_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "r"
    path.write_text("before")
    records = [Record(label="x", kind=Kind.HOST, samples=(1.0,), how="m")]

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "replace", full)
        with pytest.raises(OSError, match="No space"):
            bench.write_json(records, path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    bench.write_json(records, path)
    assert path.read_text() != "before"


def test_a_link_stays_a_link_and_its_file_is_written(tmp_path):
    there, link = tmp_path / "there", tmp_path / "link"
    there.write_text("before")
    link.symlink_to(there)
    files.write_whole(link, json.dumps([1]))
    assert link.is_symlink()
    assert there.read_text() == "[1]"


def test_what_the_system_holds_open_is_written_to_and_not_replaced(tmp_path):
    path = tmp_path / "held"
    with open(path, "w") as held:
        files.write_whole(f"/dev/fd/{held.fileno()}", "text")
        assert os.fstat(held.fileno()).st_ino == path.stat().st_ino
    assert path.read_text() == "text"
