"""Makes names in C from names of graphs, inputs and outputs."""

from __future__ import annotations

import re

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place

CODE = "EK0483"

# Names that a parameter cannot have in C or C++, and those of the parameters that every function has.
RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
        auto break case char const continue default do double else enum extern float for goto if inline int long
        register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
        bool true false alignas alignof and asm bitand bitor catch class compl concept constexpr decltype delete
        explicit export friend mutable namespace new noexcept not nullptr operator or private protected public requires
        template this throw try typeid typename using virtual xor why plan workspace
        """,
    )
)


def c_identifier(text: str) -> str:
    """A name in C that is like a text."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII) or "_"
    name = f"_{name}" if name[0].isdigit() else name
    return f"{name}_" if name in RESERVED else name


def check_name(name: str) -> None:
    """Refuses what is not a name in C.

    Raises:
        GraphError: EK0483.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in RESERVED:
        text, wanted = f"{name!r} is not a name in C", "letters, digits and _, and no digit first"
        raise GraphError(text, code=CODE, place=user_place(), argument="name", expected=wanted, got=name)


class CNames:
    """Names in C, each given once."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def new(self, text: str) -> str:
        """A name that is like a text, and that no other text was given."""
        name = first = c_identifier(text)
        number = 2
        while name in self.taken:
            name, number = f"{first}_{number}", number + 1
        self.taken.add(name)
        return name
