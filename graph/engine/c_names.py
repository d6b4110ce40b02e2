"""Makes names of exports: in C from those of graphs and inputs, and of outputs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ..ir import GraphIR

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
        template this throw try typeid typename using virtual xor why plan workspace einkorn
        """,
    )
)

# Names that the function of a model cannot have: those of the C library that files call or programs often include.
NOT_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """
        main abort exit malloc calloc realloc aligned_alloc free memcpy memmove memset memcmp strlen strcmp strtod
        snprintf printf open close read write lseek mmap munmap syscall dladdr clock_gettime sched_yield
        """,
    )
)

OWN = "ek_"  # begins the names of the functions within a file


def function_name(text: str) -> str:
    """The name in C of a model's function that is like a text."""
    name = c_identifier(text)
    if name.startswith(OWN):
        return f"model_{name}"
    return f"{name}_" if name in NOT_FUNCTIONS else name


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
    text, wanted = "", "another name"
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in RESERVED:
        text, wanted = f"{name!r} is not a name in C", "letters, digits and _, and no digit first"
    elif name in NOT_FUNCTIONS:
        text = f"{name!r} is a function of the C library"
    elif name.startswith(OWN):
        text = f"{name!r} begins with {OWN}, as functions within exported files do"
    if text:
        raise GraphError(text, code=CODE, place=user_place(), argument="name", expected=wanted, got=name)


def names_of_outputs(ir: GraphIR, given: Sequence[str] | None) -> Sequence[str]:
    """What the outputs are called: as given, or "y", or "y0", "y1" and so on.

    Raises:
        GraphError: EK0483 another number of names than of outputs is given.
    """
    count = len(ir.outputs)
    if given is None:
        return ["y"] if count == 1 else [f"y{k}" for k in range(count)]
    if len(given) != count:
        raise GraphError(
            f"graph '{ir.name}' has {count} outputs, and {len(given)} names are given",
            code=CODE,
            place=user_place(),
            argument="output_names",
            expected=count,
            got=len(given),
        )
    return given


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
