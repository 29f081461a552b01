"""Internals of `tallbayes.data.sources.sqlite`; what users see of it is tested in test_sources.py."""

import contextlib
import sqlite3
import sys

import pytest

from tallbayes.data import read
from tallbayes.errors import DataError

SQLITE = sys.modules["tallbayes.data.sources.sqlite"]


@pytest.fixture(autouse=True)
def stores(tmp_path, monkeypatch):
    folder = tmp_path / "stores"
    monkeypatch.setenv("TALLBAYES_STORE", str(folder))
    return folder


def test_a_value_of_another_type_in_a_database_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(SQLITE, "BATCH", 4)
    with contextlib.closing(sqlite3.connect(tmp_path / "rows.db")) as connection:
        connection.execute("create table visits (y, x)")
        connection.executemany("insert into visits values (?, ?)", [(0, 1)] * 6 + [(1, 1.5), (1, "red")])
        connection.commit()
    source = f"sqlite:{tmp_path / 'rows.db'}::visits"
    with pytest.raises(DataError, match=r"row 7, column 'x' is 'red'.*CAST"):
        read(source, "y ~ x")
    assert read(f"{source.removesuffix('visits')}select * from visits where x != 'red'", "y ~ x").records[6, 1] == 1.5
