"""Recovers after a statement of a kernel file has failed: reads on, so that all its mistakes are found in one go.

A statement that fails leaves those names broken that it would have bound, and what mentions one of these says nothing
more. A name that is unknown in the head of a function or a class is reported, and stands for anything while the head is
read again. After a mistake only definitions are run: functions, classes, assignments, imports.

See also `frontend.python.import_file` (how modules are found).
"""

from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from ...diagnostics.collecting import BROKEN, Broken
from ...diagnostics.errors import CompileError, EinkornError
from ...diagnostics.places import Place, instruction_place
from ...diagnostics.shield import Interruption
from ...diagnostics.syntax_trees import syntax_tree
from ...language.foreign_names import of_line
from ...language.imports import of_unknown, with_imports
from .names import names_assigned

_MADE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DEFINING = (*_MADE, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.If, ast.Try)


def recover(
    names: dict[str, Any], file: str, text: str, error: BaseException, note: Callable[[EinkornError], object]
) -> None:
    """Runs the statements behind the one that has raised `error`; gives `note` what is wrong in each.

    Raises:
        BaseException: `error` itself, where no statement has raised it.
    """
    if isinstance(error, SyntaxError) and error.filename == file:
        raise error
    statements: list[ast.stmt] = syntax_tree(text, file).body
    flags = _future_flags(statements)
    broken: dict[str, EinkornError] = names.setdefault(BROKEN, {})
    raised: BaseException | None = error
    while raised is not None:
        at = _failed(statements, raised, file)
        if at is None:
            raise raised
        statement = statements[at]
        unknown = raised.name if isinstance(raised, NameError) else None
        causes = [broken[name] for name in (_mentioned(statement) if unknown is None else [unknown]) if name in broken]
        mistake = causes[0] if causes else as_mistake(raised, file, names)
        if not causes:
            note(mistake)
        again = isinstance(statement, _MADE) and unknown is not None and unknown not in names
        if again and unknown is not None:
            names[unknown] = Broken(mistake)
            broken[unknown] = mistake
        rest = statements[at:] if again else statements[at + 1 :]
        statements = [stmt for stmt in rest if isinstance(stmt, _DEFINING)]
        lost = names_assigned([stmt for stmt in [statement, *rest] if stmt not in statements])
        broken |= dict.fromkeys(lost, mistake)
        raised = _run(statements, file, flags, names)


def _run(statements: list[ast.stmt], file: str, flags: int, names: dict[str, Any]) -> BaseException | None:
    """Runs statements of a module; what one of them raises."""
    code = compile(ast.Module(statements, []), file, "exec", flags, dont_inherit=True)
    try:
        exec(code, names)
    except (KeyboardInterrupt, Interruption):
        raise
    except BaseException as error:
        return error
    return None


def _failed(statements: list[ast.stmt], error: BaseException, file: str) -> int | None:
    """The number of the statement of the file in which an error was raised."""
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == file and code.co_name == "<module>":
            for number, stmt in enumerate(statements):
                first = min([stmt.lineno, *(node.lineno for node in getattr(stmt, "decorator_list", ()))])
                if first <= traceback.tb_lineno <= (stmt.end_lineno or stmt.lineno):
                    return number
        traceback = traceback.tb_next
    return None


def _mentioned(statement: ast.stmt) -> list[str]:
    """The names that a statement reads when it is run; those in the body of a function it does not."""
    parts: list[ast.AST] = [statement]
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        parts = [*statement.decorator_list, statement.args, *([statement.returns] if statement.returns else [])]
    return [node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)]


def _future_flags(statements: list[ast.stmt]) -> int:
    flags = 0
    for stmt in statements:
        if isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__":
            for alias in stmt.names:
                flags |= getattr(__future__, alias.name).compiler_flag
    return flags


_ENCODING = "save the file as UTF-8, or name its encoding in the first line: # -*- coding: latin-1 -*-"


def _is_nested(error: BaseException) -> bool:
    """Whether the file is to blame, whose text or whose calls nest deeply: not its importer, nor the machine."""
    depth, step = 0, error.__traceback__
    while step is not None and step.tb_next is not None:
        depth, step = depth + 1, step.tb_next
    parsing = step is not None and step.tb_frame.f_code.co_name in _PARSE
    return parsing or "during compilation" in str(error) or depth > sys.getrecursionlimit() // 2


_PARSE = {
    "parse",
    "_call_with_frames_removed",
    "source_to_code",
    "kernels_of",
    "_run",
    "get_code",
}  # where Python reads a text


def as_mistake(
    error: BaseException,
    file: str,
    known: Iterable[str] = (),
    *,
    what: str = "importing this kernel file",
    code: str = "EK0110",
) -> EinkornError:
    """What the import of a kernel file has raised, as an error at its place.

    Args:
        error: the exception.
        file: the path of the file.
        known: the names that the file has.
        what: what failed, and the code of such an error.
    """
    place = place_of(error, file)
    if isinstance(error, EinkornError):
        error.place = error.place or place
        return error
    if isinstance(error, RecursionError | MemoryError):
        if not _is_nested(error):
            raise error
        return CompileError("this file is nested too deeply", code="EK0112", place=place)
    if isinstance(error, OSError) and error.filename == file:
        return CompileError(f"this file cannot be read: {error.strerror}", code=code, place=Place(file, 1))
    if isinstance(error, UnicodeDecodeError):
        return _undecodable(error, file)
    if isinstance(error, SyntaxError):
        line, column = error.lineno or 1, error.offset or 1
        end_line, end_column = error.end_lineno or line, error.end_offset or column + 1
        return CompileError(
            f"this is not valid Python: {error.msg}",
            code="EK0100",
            place=Place(error.filename or file, line, column, end_line, max(end_column, column + 1)),
            hint=_ENCODING if "encoding" in str(error.msg) else of_line(error.text or ""),
        )
    shown = type(error).__name__
    with suppress(Exception):  # the author's class may have a __str__ that fails
        shown += f": {error}" if str(error) else ""
    unknown = error.name if isinstance(error, NameError) else None
    hint = with_imports(of_unknown(unknown, known), place) if unknown else None
    return CompileError(f"{what} failed: {shown}", code=code, place=place, hint=hint)


def _undecodable(error: UnicodeDecodeError, file: str) -> CompileError:
    """A file with bytes that are not text in its encoding."""
    before = error.object[: error.start]
    line, column = before.count(b"\n") + 1, len(before.rpartition(b"\n")[2].decode(errors="replace")) + 1
    return CompileError(
        f"this is not valid Python: byte 0x{error.object[error.start]:02x} is not {error.encoding.upper()}",
        code="EK0100",
        place=Place(file, line, column),
        hint=_ENCODING,
    )


def place_of(error: BaseException, file: str) -> Place:
    """The deepest frame of the traceback that lies in the file."""
    place = Place(file, 1)
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == file:
            place = instruction_place(code, traceback.tb_lasti, traceback.tb_lineno)
        traceback = traceback.tb_next
    return place
