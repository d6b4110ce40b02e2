"""How layouts are shown: as a grid of offsets, in text, as a card of notebooks, as SVG.

Rows are the first mode of a layout, columns all others.

See also `layout` (what a layout means).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..dsl import Parts
from ..dsl.diagnostics.cards import Card, CardTable, Part
from ..dsl.diagnostics.errors import EinkornError, plural
from ..dsl.diagnostics.places import user_place
from ..dsl.diagnostics.rich import Rich

MAX_SHOWN = 32  # rows and columns that text and cards show
CELL = 34  # pixels of SVG

Shape = Parts  # an integer, or a tuple of shapes


class LayoutMembers:
    """What layouts answer."""

    shape: Any
    stride: Any
    size: Any
    outer: Any
    inner: Any
    offset: Any

    def __call__(self, *coordinate: Shape) -> Any:
        """The offset of a coordinate."""


if TYPE_CHECKING:

    class Shaped(LayoutMembers, Protocol):
        """A layout, a swizzle or what they are composed to."""


class DrawnLayout(Rich):
    """What Python alone has of a layout; kernels see nothing of it."""

    def __post_init__(self) -> None:
        """Checks that shape and stride are of one form.

        Raises:
            EinkornError: EK0894, they are not, or a part is not a number.
        """
        if hasattr(self, "stride"):
            _check(getattr(self, "shape", None), self.stride, self)

    def card(self) -> Card:
        """What notebooks show."""
        parts: list[Part] = []
        if _has_grid(self):
            high, wide = _count(self), _columns(self)
            heads = ("", *map(str, range(min(wide, MAX_SHOWN))))
            cut = [f"{MAX_SHOWN} of {n} {what}" for n, what in ((high, "rows"), (wide, "columns")) if n > MAX_SHOWN]
            parts = [CardTable(heads, _rows(self), numbers=range(len(heads)), title=", ".join(cut), most=MAX_SHOWN)]
        facts = [(name, str(getattr(self, name, ""))) for name in ("size", "cosize", "rank", "depth")]
        return Card(_KINDS.get(type(self).__name__, "layout"), notation(self), parts, [f for f in facts if f[1]])

    def __str__(self) -> str:
        return "\n".join([notation(self), *(part.text() for part in self.card().parts)])

    def svg(self, colors: int = 8) -> str:
        """The grid as a picture; offsets that are equal modulo `colors` have one colour, as banks of memory would."""
        if not _has_grid(self):
            raise EinkornError(f"{notation(self)} has no coordinates to draw", code="EK0894", place=user_place())
        rows, columns = _count(self), _columns(self)
        cells = [_cell(self(i + rows * j), i, j, colors) for i in range(rows) for j in range(columns)]  # type: ignore[operator]
        heads = [_text(str(j), j + 1, 0, "gray") for j in range(columns)]
        heads += [_text(str(i), 0, i + 1, "gray") for i in range(rows)]
        width, height = (columns + 1) * CELL, (rows + 1) * CELL
        size = f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
        style = "font-family='ui-monospace,monospace' font-size='13' text-anchor='middle' dominant-baseline='central'"
        return f"<svg xmlns='http://www.w3.org/2000/svg' {size} {style}>{''.join([*cells, *heads])}</svg>"


_KINDS = {"Swizzle": "swizzle", "ComposedLayout": "composed layout"}


def notation(layout: Shaped) -> str:
    """A layout on one line: `(4, 8):(8, 1)`."""
    match type(layout).__name__:
        case "Layout":
            return f"{layout.shape}:{layout.stride}"
        case "ComposedLayout":
            moved = f" + {layout.offset}" if layout.offset else ""
            return f"{notation(layout.outer)} of ({notation(layout.inner)}){moved}"
        case _:
            return repr(layout)


def _has_grid(layout: Shaped) -> bool:
    return hasattr(layout, "shape") and layout.size > 0


def _count(layout: Shaped) -> int:
    """How many rows its grid has."""
    return _product(layout.shape[0]) if isinstance(layout.shape, tuple) and layout.shape else 1


def _columns(layout: Shaped) -> int:
    return int(layout.size) // _count(layout)


def _rows(layout: Shaped) -> list[tuple[str, ...]]:
    """The rows of its grid, each with its number."""
    rows, columns = _count(layout), min(_columns(layout), MAX_SHOWN)
    return [(str(i), *(str(layout(i + rows * j)) for j in range(columns))) for i in range(min(rows, MAX_SHOWN))]


def _product(shape: Shape) -> int:
    if not isinstance(shape, tuple):
        return int(shape)
    result = 1
    for part in shape:
        result *= _product(part)
    return result


def _cell(offset: int, i: int, j: int, colors: int) -> str:
    fill = f"hsl({360 * (offset % colors) // colors},70%,82%)"
    x, y = (j + 1) * CELL, (i + 1) * CELL
    box = f"<rect x='{x}' y='{y}' width='{CELL}' height='{CELL}' fill='{fill}' stroke='gray' stroke-width='.5'/>"
    return box + _text(str(offset), j + 1, i + 1, "black")


def _text(text: str, column: int, row: int, color: str) -> str:
    return f"<text x='{(column + 0.5) * CELL:g}' y='{(row + 0.5) * CELL:g}' fill='{color}'>{text}</text>"


def _check(shape: Shape, stride: Shape, layout: Shaped) -> None:
    if isinstance(shape, tuple) != isinstance(stride, tuple):
        raise _refused(layout, f"shape {shape!r} and stride {stride!r} are not of one form")
    if isinstance(shape, tuple):
        if len(shape) != len(stride):
            text = f"shape {shape!r} has {plural(len(shape), 'part')}, stride {stride!r} has {len(stride)}"
            raise _refused(layout, text)
        for part, step in zip(shape, stride, strict=True):
            _check(part, step, layout)
        return
    for what, number in (("shape", shape), ("stride", stride)):
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise _refused(layout, f"a {what} is a number or a tuple of them, not {number!r}")
    if shape < 0:
        raise _refused(layout, f"a size is not below zero, as {shape} is")


def _refused(layout: Shaped, text: str) -> EinkornError:
    return EinkornError(
        f"no layout: {text}",
        code="EK0894",
        place=user_place(),
        argument="stride",
        hint="Layout.row_major(shape) and Layout.column_major(shape) find the strides",
    )
