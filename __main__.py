"""`python -m einkorn`: the command line, see `cli.application`."""

from __future__ import annotations

from .cli.application import main

if __name__ == "__main__":
    main()
