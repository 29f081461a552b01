"""The command line."""

from tallbayes.cli.commands import main

__all__ = ["main"]
