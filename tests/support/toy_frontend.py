"""A frontend for tests: three lines of text are an op, element by element.

    toy::doubled
    x
    x * 2

The first line names the op, the second its inputs, the third what an element of the output is: a sum or a product of
two things, each an input or a whole number.
"""

from __future__ import annotations

from pathlib import Path

from einkorn.dsl.diagnostics.errors import CompileError, EinkornError
from einkorn.dsl.diagnostics.places import Place
from einkorn.dsl.frontend import syntax as s
from einkorn.dsl.frontend.base import Frontend, SourceKernel
from einkorn.dsl.frontend.program import GlobalEntry, PortableKernel, SourceFunction
from einkorn.dsl.signature.schema import OpSchema, Role, TensorArgument
from einkorn.dsl.types.dtype import FLOATING

SIGNS = {"+": "add", "*": "mul"}


class Toy(Frontend):
    def read(self, file: Path, mistakes: list[EinkornError]) -> list[SourceKernel]:
        name, inputs, text = file.read_text().splitlines()
        left, sign, right = text.split(" ")
        unknown = [word for word in (left, right) if word not in inputs.split() and not word.isdecimal()]
        if unknown:
            place = Place(str(file), 3, text.index(unknown[0]) + 1, 3, text.index(unknown[0]) + 1 + len(unknown[0]))
            mistakes.append(CompileError(f"unknown name '{unknown[0]}'", code="EK0101", place=place))
            return []
        arguments = [TensorArgument("out", Role.OUTPUT, "T", "*s")]
        arguments += [TensorArgument(word, Role.INPUT, "T", "*s") for word in inputs.split()]
        schema = OpSchema(name, tuple(arguments), typevars=(("T", FLOATING),), place=Place(str(file), 1))

        def term(word: str) -> s.Expr:
            column = text.index(word) + 1
            span = (3, column, 3, column + len(word))
            if word.isdecimal():
                return s.Constant(int(word), span=span)
            return s.Subscript(s.Name(word, span=span), s.Name("i", span=span), span=span)

        def make() -> PortableKernel:
            whole = (3, 1, 3, len(text) + 1)
            element = s.Binary(SIGNS[sign], term(left), term(right), span=whole)
            body = s.Lambda((s.Param("i", span=whole),), element, span=whole)
            store = s.Call(s.Global(0, "foreach", span=whole), (s.Name("out", span=whole), body), span=whole)
            function = s.Function("toy", (), (s.Expression(store, span=whole),), span=whole)
            return PortableKernel(schema, (SourceFunction(function, str(file)),), (GlobalEntry("stub", "foreach"),))

        return [SourceKernel(schema, make)]

    def holds_kernels(self, file: Path) -> bool:
        return not self.is_test(file)

    def is_test(self, file: Path) -> bool:
        return file.name.startswith("test_")

    def is_broken(self, file: Path) -> bool:
        return len(file.read_text().splitlines()) != 3


TOY = Toy()
