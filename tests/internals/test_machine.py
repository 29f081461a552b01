"""What operating systems do differently, simulated: Windows has no `resource` and opens no folders, macOS has no count of free pages."""

import builtins
import os
import subprocess
from types import SimpleNamespace

import pyarrow as pa
import pytest
from support import start_python

import tallbayes as tb
from tallbayes import machine
from tallbayes.data.packed_store import write_synced

WITHOUT = """
import sys

import psutil  # which has a module for each system

sys.modules["resource"] = None  # importing it raises ImportError, as on Windows
for name in ("fcntl", "pwd", "grp", "termios"):
    sys.modules.setdefault(name, None)
import tallbayes as tb
from tallbayes import machine
from tallbayes.cli import main

assert machine.peak_memory() > 1_000_000
print("imported", tb.__version__)
"""


def test_the_package_imports_without_resource():
    process = start_python("-c", WITHOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert out == f"imported {tb.__version__}\n"


def test_memory_is_that_of_the_working_set_on_windows(monkeypatch):
    held = SimpleNamespace(rss=5, peak_wset=7)
    monkeypatch.setitem(__import__("sys").modules, "resource", None)
    monkeypatch.setattr(machine.psutil, "Process", lambda: SimpleNamespace(memory_info=lambda: held))
    assert machine.peak_memory() == 7


@pytest.mark.parametrize("platform, factor", [("linux", 1024), ("darwin", 1)])
def test_units_of_the_peak(monkeypatch, platform, factor):
    import resource

    monkeypatch.setattr(machine.sys, "platform", platform)
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=1000))
    assert machine.peak_memory() == 1000 * factor


def test_rows_are_read_where_free_pages_are_not_counted(monkeypatch):
    """As on macOS: no /proc/meminfo, no SC_AVPHYS_PAGES."""

    def no_pages(name):
        raise ValueError("unrecognized configuration name")

    def no_proc(path, *arguments, original=open, **options):
        if str(path).startswith("/proc"):
            raise FileNotFoundError(path)
        return original(path, *arguments, **options)

    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: SimpleNamespace(available=1 << 30))
    monkeypatch.setattr(os, "sysconf", no_pages)
    monkeypatch.setattr(builtins, "open", no_proc)
    assert tb.read(pa.table({"x": [1.0, 2.0], "y": [0, 1]}), "y ~ x", progress=False).n == 2


def test_available_memory_is_less_than_all_there_is():
    assert 0 < machine.available_memory() < machine.psutil.virtual_memory().total


def test_files_are_written_where_folders_cannot_be_opened(monkeypatch, tmp_path):
    def refuse(path, *arguments, original=os.open, **options):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    write_synced(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_files_are_synced_through_a_descriptor_that_can_write(monkeypatch, tmp_path):
    """Windows refuses to sync one that is open for reading alone."""
    import fcntl

    modes = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: modes.append(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE))
    (tmp_path / "file").write_bytes(b"content")
    machine.sync_file(tmp_path / "file")
    assert modes == [os.O_RDWR] and (tmp_path / "file").read_bytes() == b"content"
