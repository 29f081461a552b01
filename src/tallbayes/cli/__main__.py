"""`python -m tallbayes.cli`."""

from tallbayes.cli.commands import main

if __name__ == "__main__":
    main()
