"""Compiles a unit for many GPUs: what comes before LLVM is done once for all targets that would give the same.

What the compiler read of the first target is noted with the answers. A target that answers the same gets the same
LLVM IR; only the name of the target in the words of reports is then that of the first one.

LLVM's optimiser, too, is run once for all GPUs of a maker that get the same LLVM IR and have as many lanes: it makes
the same of it for each of them, as `tests/gpu/test_cases.py` says. Code is generated for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from typing import Any

from einkorn.compiler import pipeline
from einkorn.compiler.codegen import llvm
from einkorn.compiler.ir.printer import print_program
from einkorn.compiler.pipeline import Artifact, Compilation, compile_entry
from einkorn.compiler.targets import Target, lookup
from einkorn.compiler.targets.base import Limits
from einkorn.dsl.contract.unit import EntrySpec, Piece
from einkorn.dsl.environment.compiling import compiling

_BACK = pipeline.NATIVE[[each.name for each in pipeline.NATIVE].index("compile") :]
_FRONT = pipeline.NATIVE[: -len(_BACK)]
_AT = [name for name, _ in llvm.PASSES].index("optimize")

_BFLOAT = ("supports", ("bf16_convert",))

Question = tuple[Any, ...]  # the names on the way to a fact; the arguments of a call are a tuple
Answers = list[tuple[Question, Any]]  # with the answers


class Listener:
    """A target, or a part of one, which notes what it is called."""

    def __init__(self, of: Any, handled: Answers, path: Question = ()) -> None:
        self._of, self._answers, self._path = of, handled, path

    def __getattr__(self, name: str) -> Any:
        value, path = getattr(self._of, name), (*self._path, name)
        if is_dataclass(value) or isinstance(value, Mapping):
            return Listener(value, self._answers, path)
        if isinstance(self._of, Limits):
            return Limit(value, self._answers, path)
        if callable(value):
            return lambda *given: self._note((*path, given))
        return self._note(path)

    def __getitem__(self, key: Any) -> Any:
        return self.__getattr__("__getitem__")(key)

    def __contains__(self, key: Any) -> Any:
        return self.__getattr__("__contains__")(key)

    def _note(self, question: Question) -> Any:
        answer = _answer(self._of, question[len(self._path) :])
        if question != ("name",):  # which is for people only
            self._answers.append((question, answer))
        return answer


class Limit(int):
    """A limit, which notes what it is compared with: most targets with other limits give the same answers."""

    def __new__(cls, value: int, handled: Answers, path: Question) -> Limit:
        made = super().__new__(cls, value)
        made.note = lambda name, other: Listener(value, handled, path)._note((*path, name, (other,)))
        return made

    note: Callable[[str, int], bool]

    def __lt__(self, other: int) -> bool:
        return self.note("__lt__", other)

    def __le__(self, other: int) -> bool:
        return self.note("__le__", other)

    def __gt__(self, other: int) -> bool:
        return self.note("__gt__", other)

    def __ge__(self, other: int) -> bool:
        return self.note("__ge__", other)


_NONE = object()  # equal to no answer


def _answer(of: Any, question: Question) -> Any:
    for step in question:
        if of is None:  # a target without such operations cannot be requested about one of them
            return _NONE
        of = of(*step) if isinstance(step, tuple) else getattr(of, step)
    return of


def _agrees(target: Target, handled: Answers) -> bool:
    """Whether a target answers all questions the same."""
    return all(_answer(target, question) == answer for question, answer in handled)


class Fronts:
    """The halves before LLVM that were made of one unit, and what they requested."""

    def __init__(self, spec: EntrySpec, level: int) -> None:
        self.spec, self.level = spec, level
        self.made: list[tuple[Answers, Compilation]] = []
        self.optimised: dict[tuple[str, str, int], Any] = {}  # modules, by text, maker and lanes

    def compile(self, name: str) -> Artifact:
        """The code for a target."""
        target = replace(lookup(name), level=self.level)
        if not target.has_grid or target.simulates:
            return compile_entry(self.spec, target)
        front = next((each for handled, each in self.made if _agrees(target, handled)), None) or self._make(target)
        c, watch = Compilation(self.spec, target), pipeline._Watch()
        c.program, c.emitted, c.text = front.program, front.emitted, front.text
        c.compiled = replace(self._generate(c.text, target), text=c.text)
        watch.run(_BACK[1:], c)
        piece = Piece(target.format.suffix, target.key, c.code)
        return Artifact(target, c.program, c.emitted, c.compiled, (piece,), watch.timings)

    def _generate(self, text: str, target: Target) -> llvm.ModuleCode:
        """The code of a module."""
        key = text, target.kind, target.lanes

        def optimise(work: llvm._ModuleWork) -> None:
            if key in self.optimised:
                work.module = self.optimised[key].clone()
                llvm._check_made(work)
                return
            for _, run in llvm.PASSES[1 : _AT + 1]:
                run(work)
            self.optimised[key] = work.module.clone()  # code generation changes a module
            work.context = None  # which the clone keeps

        return llvm.compile_module(
            text, target, passes=(llvm.PASSES[0], ("optimize", optimise), *llvm.PASSES[_AT + 1 :])
        )

    def _make(self, target: Target) -> Compilation:
        typed: Answers = []
        lowered: Answers = []
        for_types: Any = Listener(target, typed)
        for_text: Any = Listener(target, lowered)
        c = Compilation(self.spec, for_types)
        compiling(pipeline._Watch(quiet=True).run)(pipeline.TYPED, c)
        c.target = for_text
        pipeline._Watch().run(_FRONT, c)
        # One of MLIR's passes requests an instruction that only programs with bfloat16 could use.
        uses_bfloat = "bfloat16" in print_program(c.program)
        relevant = [each for each in lowered if each[0] != _BFLOAT or uses_bfloat]
        # What is refused is by now; after that, limits are only for code that launches, which is not made here.
        typed += [each for each in relevant if each[0][0] not in ("limits", "most_blocks")]
        once = {repr(question): (question, answer) for question, answer in typed}
        self.made.append((list(once.values()), c))
        return c
