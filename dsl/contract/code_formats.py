"""Lists the formats of compiled code: what a target's code is, and the suffix of its files in packages.

See also `compiler.targets` (which target has which format).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..diagnostics.dataclass import dataclass


@dataclass(frozen=True)
class CodeFormat:
    """One format. `is_text`: the code is LLVM's assembly text, and nothing is linked; else it is a linked object.

    `in_process`: the code is mapped into this process, and its entry is called as `dsl.contract.abi` says.
    """

    suffix: str
    is_text: bool = False
    in_process: bool = False


SHARED_OBJECT: Final = CodeFormat("so", in_process=True)
PTX: Final = CodeFormat("ptx", is_text=True)
HSACO: Final = CodeFormat("hsaco")

FORMATS: Final[Mapping[str, CodeFormat]] = {format.suffix: format for format in (SHARED_OBJECT, PTX, HSACO)}
