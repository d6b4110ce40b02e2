"""`Rich`: objects that show themselves in notebooks, as HTML where there is a page, as text at IPython's prompt.

How they look is found by name, since what is shown and who draws it do not know each other.

See also `graph.interop.notebook` (what is shown of an object).
"""

from __future__ import annotations

import functools
from typing import Any

from .installation import PACKAGE
from .shield import import_whole


@functools.cache
def _cards() -> Any:
    """Who says what cards hold; loaded when something is shown first."""
    return import_whole(f"{PACKAGE}.graph.interop.notebook")


class Rich:
    """A class whose objects have a card: a title, facts and tables."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        type.__setattr__(cls, "_repr_pretty_", Rich._repr_pretty_)  # IPython asks no base behind a class with a repr

    def _repr_html_(self) -> str:
        html: str = _cards().card_of(self).html()
        return html

    def as_text(self) -> str:
        """The card as text."""
        text: str = _cards().card_of(self).text()
        return text

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        alone = not cycle and len(getattr(printer, "stack", ())) < 2  # not an element of a list
        printer.text(self.as_text() if alone else repr(self))
