"""How the command line shows errors and pages: text or JSON lines, with colours on a terminal.

Colours are an addition: the text is the same without them. They are there when standard output (or error) is a
terminal, unless NO_COLOR is set; `--color always` and `never` overrule both. With `--format json` every error is one
line of JSON, see `EinkornError.to_dict`.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TextIO

from ..dsl.diagnostics.errors import EinkornError, Several, counted
from ..dsl.diagnostics.shown import colored

COLORS = ("auto", "always", "never")
FORMATS = ("text", "json")


@dataclass(frozen=True)
class Printer:
    """The chosen way: one of `FORMATS`, one of `COLORS`."""

    format: str = "text"
    color: str = "auto"

    def colored(self, stream: TextIO) -> bool:
        """Whether a stream gets colours."""
        if self.color != "auto":
            return self.color == "always"
        return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def error(self, error: EinkornError, stream: TextIO | None = None) -> None:
        """Shows an error; each on its own when it stands for several."""
        out = sys.stdout if stream is None else stream
        if self.format == "json":
            for each in getattr(error, "errors", [error]):
                print(json.dumps(each.to_dict(), ensure_ascii=False), file=out)
            if isinstance(error, Several):
                print(json.dumps({"errors": len(error.errors), "more": error.more}), file=out)
            return
        text = colored(str(error)) if self.colored(out) else str(error)
        print(text, end="\n\n" if stream is None else "\n", file=out)

    def summary(self, looked: str, errors: int, more: bool) -> None:
        """The last line of a check: what was looked at, and how many errors there are."""
        if self.format == "json":
            print(json.dumps({"looked_at": looked, "errors": errors, "more": more}))
            return
        text, failed = f"{looked}: {counted(errors, more) if errors else 'no errors'}", bool(errors)
        if not self.colored(sys.stdout):
            print(text)
            return
        from rich.console import Console

        Console(force_terminal=True, highlight=False).print(
            text, style="bold red" if failed else "bold green", soft_wrap=True
        )

    def page(self, markdown: str) -> None:
        """A page of Markdown: set for a terminal, as it is in a pipe."""
        if not self.colored(sys.stdout):
            print(markdown.rstrip("\n"))
            return
        from rich.console import Console
        from rich.markdown import Markdown

        Console(force_terminal=True).print(Markdown(markdown))
