"""Commands that list and clear packed stores."""

from __future__ import annotations

import json
from typing import Annotated

import typer

stores = typer.Typer(help="List or delete packed stores.", no_args_is_help=True)


@stores.command("list")
def list_stores(as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False) -> None:
    """List the packed stores: name, rows, bytes and source."""
    from tallbayes import store

    found = store.list()
    if as_json:
        print(json.dumps([entry.as_dict() for entry in found], indent=1))
        return
    for entry in found:
        rows = "damaged" if entry.rows is None else f"{entry.rows:,} rows"
        print(f"{entry.name}  {rows}  {entry.bytes / 1e6:,.1f} MB  {entry.source or 'a stream'}")
    print(f"{len(found)} stores in {store.folder()}")


@stores.command("clear")
def clear_stores(
    name: Annotated[str | None, typer.Argument(help="Name from `tallbayes store list`; default: all stores.")] = None,
) -> None:
    """Delete one packed store, or all of them."""
    from tallbayes import store

    removed = store.clear(name)
    print(f"deleted {len(removed)} stores from {store.folder()}")
