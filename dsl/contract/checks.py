"""Says what compiled code checks as it runs: `off`, `safe` or `all`, and whether it looks for NaN.

    off     neither accesses nor the author's `assert`s; a `raise` stays
    safe    asserts, and every access that is not proven to lie inside its tensor: once before a loop where that says
            the same, else where it is made
    all     the same, each where it is made, and integer division by zero
    +nan    also stops at the first NaN that an op stores; +inf at the first NaN or infinity

See also `compiler.inference.runtime_checks`.
"""

from __future__ import annotations

from typing import Final

from ..diagnostics.dataclass import dataclass
from ..diagnostics.errors import EinkornError, brief, did_you_mean
from ..diagnostics.places import user_place

LEVELS: Final = ("off", "safe", "all")
FINDS: Final = ("", "nan", "inf")


@dataclass(frozen=True)
class Checks:
    """What code checks: one of `LEVELS`, and which numbers end a call when an op stores them."""

    level: str = "safe"
    finds: str = ""

    def __str__(self) -> str:
        return f"{self.level}+{self.finds}" if self.finds else self.level

    @property
    def asserts(self) -> bool:
        """Whether the author's asserts are compiled."""
        return self.level != "off"


SAFE: Final = Checks()
OFF: Final = Checks("off")


def parse_checks(text: object) -> Checks:
    """The checks that a text names.

    Raises:
        EinkornError (EK0710): the text names none.
    """
    if isinstance(text, Checks):
        return text
    level, _, finds = text.partition("+") if isinstance(text, str) else ("", "", "")
    if level not in LEVELS or finds not in FINDS or (isinstance(text, str) and text.endswith("+")):
        listed = ", ".join(repr(name) for name in LEVELS)
        raise EinkornError(
            f"checks= takes {listed}, with '+nan' or '+inf' behind it if wanted, not {brief(text)}",
            code="EK0710",
            place=user_place(),
            argument="checks",
            expected=list(LEVELS),
            got=brief(text),
            hint=did_you_mean(text, LEVELS) if isinstance(text, str) else None,
        )
    return Checks(level, finds)
