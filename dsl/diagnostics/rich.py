"""`Rich`: objects that show themselves in notebooks, as HTML where there is a page, as text at IPython's prompt.

How they look is found by name, since what is shown and what draws it do not import each other.

See also `graph.interop.notebook` (what is shown of an object).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .extension_points import ExtensionPoint

if TYPE_CHECKING:
    from .cards import Card

CARD_OF: ExtensionPoint[Callable[[object], Card]] = ExtensionPoint("graph.interop.notebook", "card_of")


class Rich:
    """A class whose objects have a card: a title, facts and tables."""

    __slots__ = ()

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        type.__setattr__(
            cls, "_repr_pretty_", Rich._repr_pretty_
        )  # IPython looks at no base behind a class with a repr

    def _repr_html_(self) -> str:
        html: str = CARD_OF.get()(self).html()
        return html

    def as_text(self) -> str:
        """The card as text."""
        text: str = CARD_OF.get()(self).text()
        return text

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        alone = not cycle and len(getattr(printer, "stack", ())) < 2  # not an element of a list
        printer.text(self.as_text() if alone else repr(self))
