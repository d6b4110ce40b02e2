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
        template this throw try typeid typename using virtual xor why plan workspace einkorn
        """,
    )
)

# Names that the function of a model cannot have: those of the C library that files call or programs often include, and
# those of functions and tables within the file.
NOT_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """
        main abort exit malloc calloc realloc aligned_alloc free memcpy memmove memset memcmp strlen strcmp strtod
        snprintf printf open close read write lseek mmap munmap syscall dladdr clock_gettime sched_yield
        call call_here call_in call_there called choose chosen create dim_names fail float_mode forget_key given
        given_masks given_names given_offsets given_pointers key look lowest nanoseconds pauses plain_floats pointers
        pool prepare process processors report rows run run_checked set_float_mode stack start started temps
        tensor_records tensors threads wanted weights weights_base weights_head weights_suffix worker workspace
        """,
    )
)


def function_name(text: str) -> str:
    """The name in C of a model's function that is like a text."""
    name = c_identifier(text)
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
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in RESERVED | NOT_FUNCTIONS:
        used = name in NOT_FUNCTIONS
        text = f"{name!r} is the name of another function in the file" if used else f"{name!r} is not a name in C"
        wanted = "another name" if used else "letters, digits and _, and no digit first"
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
