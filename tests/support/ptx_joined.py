"""Assembles several modules of PTX with one run of ptxas: to start it takes as long as most modules do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from einkorn.compiler.targets import Target
from einkorn.compiler.targets.nvptx import assemble
from einkorn.dsl.diagnostics.errors import InternalError

_HEAD = re.compile(r"^\.(?:version|target|address_size) .*\n", re.MULTILINE)
_SECTION = re.compile(r"^\t\.section\t\.debug_macinfo\t\{\t\}\n", re.MULTILINE)
_FILE = re.compile(r"(\.file\t|\.loc\t|inlined_at )(\d+)")
_NAME = re.compile(
    r"^\.visible \.entry (\w+)\(|^(?:\.\w+ )*\.(?:global|shared|const) .*?(\w+)(?:\[\d*\])?(?: = .*)?;$", re.MULTILINE
)
_FILES = 1000  # more than one module names


def assemble_all(modules: Sequence[str], target: Target) -> bytes:
    """One cubin of all modules, which are for one target.

    Raises:
        InternalError: ptxas refused one of them, which is then assembled by itself.
    """
    try:
        return assemble(joined(modules), target)
    except InternalError:
        for module in modules:
            assemble(module, target)
        raise


def joined(modules: Sequence[str]) -> str:
    """The modules as one; what they declare has the number of the module in its name."""
    parts = ["".join(_HEAD.findall(modules[0]))]
    for number, module in enumerate(modules):
        assert _HEAD.findall(module) == _HEAD.findall(modules[0])
        text = _SECTION.sub("", _HEAD.sub("", module))
        names = {name for each in _NAME.findall(text) for name in each if name}
        text = re.sub(r"\b\w+\b", lambda word, n=number, all=names: word[0] + f"_of_{n}" * (word[0] in all), text)
        parts.append(_FILE.sub(lambda at, n=number: f"{at[1]}{int(at[2]) + n * _FILES}", text))
    return "".join(parts)
