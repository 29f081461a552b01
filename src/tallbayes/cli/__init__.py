"""The command line: `main` is the program, `app` its commands as a Typer application, for Typer's own tools and its test runner."""

from tallbayes.cli.commands import app, main

__all__ = ["app", "main"]
