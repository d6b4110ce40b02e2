"""Explains an error code at length: a text, an example that is wrong, and its repair.

One Markdown file a code, in `explanations/`. Its examples are fenced, with a kind and a role behind the fence:

    ```kernel wrong      a kernel file; what every kernel file begins with is left out (`KERNEL_PRELUDE`)
    ```python right      a program; what every program begins with is left out (`PROGRAM_PRELUDE`)
    ```console wrong     a line for the shell, in a folder with a kernel file `kernels.py` (`LIBRARY`)

A test runs every example: the wrong one gives its code, the right one gives no error.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Final

from .codes import MEANINGS
from .dataclass import dataclass
from .errors import EinkornError, did_you_mean

KERNEL_PRELUDE: Final = """from typing import TypeVar

from einkorn.dsl import *

T = TypeVar("T", bound=Floating)
"""

PROGRAM_PRELUDE: Final = """import numpy as np

from einkorn.graph import *
from einkorn.graph import ops

cpu = DeviceRef.CPU()


def f32(*dims):
    return TensorType(DType.float32, dims, cpu)


def graph(forward, *types):
    return Graph("example", forward=forward, input_types=types, custom_extensions=["kernels.py"])
"""

LIBRARY: Final = f"""{KERNEL_PRELUDE}

@register("double")
def double(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] * 2)


@register("add")
def add(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] + y[i])


@register("scale")
def scale(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], *, by: float):
    foreach(out, lambda i: x[i] * by)


@register("pick")
def pick(out: OutputTensor[T, "n"], x: InputTensor[T, "m"], ids: InputTensor[int64, "n"]):
    foreach(out, lambda i: x[ids[i]])


@register("accumulate")
def accumulate(total: MutableInputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(total, lambda i: total[i] + x[i])
"""

_FENCE = re.compile(r"^```(kernel|python|console|text) ?(wrong|right)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A piece of text that is `wrong`, or `right`; its kind is kernel, python or console."""

    kind: str
    role: str
    text: str


@dataclass(frozen=True)
class Explanation:
    """What is to be said of a code: the meaning in one sentence, the text as Markdown, and its examples."""

    code: str
    meaning: str
    text: str

    @property
    def examples(self) -> tuple[Example, ...]:
        return tuple(Example(*match.groups()) for match in _FENCE.finditer(self.text) if match[2])

    def markdown(self) -> str:
        """The whole as a page: heading, text, and examples with the words that lead to them."""
        lead = {"wrong": "Wrong:\n\n", "right": "Right:\n\n", None: ""}
        spoken = {"kernel": "python", "python": "python", "console": "console", "text": "text"}

        def fence(match: re.Match[str]) -> str:
            return f"{lead[match[2]]}```{spoken[match[1]]}\n{match[3]}```"

        return f"# {self.code}\n\n{self.meaning}\n\n{_FENCE.sub(fence, self.text).strip()}\n"


def explain(code: str) -> Explanation:
    """The explanation of a code, which may be written `EK0213`, `ek213` or `213`.

    Raises:
        EinkornError (EK0711): there is no such code.
    """
    digits = re.fullmatch(r"(?:ek)?0*(\d{1,4})", code.strip().lower())
    wanted = f"EK{int(digits[1]):04}" if digits else code
    if wanted not in MEANINGS:
        raise EinkornError(
            f"there is no error code {code!r}",
            code="EK0711",
            got=code,
            hint=did_you_mean(wanted, MEANINGS) or "`einkorn explain` lists all codes",
        )
    folder = resources.files(__package__).joinpath("explanations")
    return Explanation(wanted, MEANINGS[wanted], folder.joinpath(f"{wanted}.md").read_text(encoding="utf-8"))


def explained_codes() -> list[str]:
    """The codes that have an explanation, in order."""
    names = (file.name for file in resources.files(__package__).joinpath("explanations").iterdir())
    return sorted(name.removesuffix(".md") for name in names if name.endswith(".md"))


def explained_page(code: str) -> str:
    """All that is to be said of a code, as a page of Markdown, with what its examples begin with.

    Raises:
        EinkornError: EK0711 there is no such code.
    """
    explanation = explain(code)
    kinds = {example.kind for example in explanation.examples}
    notes = ""
    if "kernel" in kinds:
        notes += f"\nKernel files here begin with\n\n```python\n{KERNEL_PRELUDE}```\n"
    if "python" in kinds:
        notes += f"\nPrograms here begin with\n\n```python\n{PROGRAM_PRELUDE}```\n"
    return explanation.markdown() + notes
