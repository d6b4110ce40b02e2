"""Parses the dims language: text to the items of `dims`, and errors that point into the text.

Start-up: importing lark and building the grammar costs more than all the rest of a warm start, and nearly all
signatures consist of plain names and sizes. Those are read by one regular expression, and expressions by a reader of a
few lines. It also reads expressions without parentheses, whose operators have blanks on both sides: `n - k + 1`. What
either does not understand is parsed with the grammar, which finds what is wrong with it.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from ..diagnostics.errors import CompileError
from ..diagnostics.places import Place
from ..diagnostics.shield import shielded
from .dims import (
    FUNCTIONS,
    AnyAxis,
    Axis,
    Computed,
    DimItem,
    DimName,
    DimNumber,
    DimOperation,
    Expression,
    FixedAxis,
    FunctionCall,
    Negate,
    Pack,
)

if TYPE_CHECKING:
    import lark

_NAME = r"[^\W\d]\w*"
_OPERATORS = ("+", "-", "*", "//", "%")
_WORD = re.compile(r"\S+")
_PLAIN = re.compile(rf"(?P<axis>{_NAME})|(?P<size>[0-9]+)|\*(?P<pack>{_NAME})(?:\{{(?P<count>{_NAME})\}})?")

_GRAMMAR = rf"""
    start: (axis | size | pack | computed)*
    axis: NAME
    size: INT
    pack: PACK ("{{" _expression "}}")?
    computed: "(" _expression ")"

    _expression: sum
    ?sum: product | sum SUM_OPERATOR product -> binary
    ?product: unary | product PRODUCT_OPERATOR unary -> binary
    ?unary: atom | "-" unary -> negate
    ?atom: INT -> number
         | NAME -> name
         | NAME "(" _expression ("," _expression)* ")" -> call
         | "(" _expression ")"

    SUM_OPERATOR: "+" | "-"
    PRODUCT_OPERATOR: "*" | "//" | "%"
    PACK: /\*{_NAME}/
    NAME: /{_NAME}/
    INT: /[0-9]+/
    %ignore /\s+/
"""


class _Mistake(Exception):
    """A mistake in a text, before it is known where the text stands."""

    def __init__(self, message: str, at: int, length: int = 1, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.at, self.length, self.hint = message, at, length, hint


def parse_dims(text: str, place: Place | None = None) -> tuple[DimItem, ...]:
    """The items of a dims text. `place` is where the argument is declared, for messages.

    Raises:
        CompileError: EK0307, the text is not in the language.
    """
    try:
        return _parse(text)
    except _Mistake as mistake:
        raise dims_error(
            f"{mistake.message} in the dims {text!r}",
            text,
            mistake.at,
            mistake.length,
            place,
            code="EK0307",
            hint=mistake.hint,
        ) from None


def parse_expression(text: str) -> Expression:
    """The expression that `text` holds, without parentheses around it."""
    items = parse_dims(f"({text})")
    if len(items) != 1 or not isinstance(items[0], Computed):
        raise dims_error(f"{text!r} is not one expression", text, 0, len(text), None, code="EK0307")
    return items[0].expression


def dims_error(
    message: str,
    text: str,
    at: int,
    length: int,
    place: Place | None,
    *,
    code: str,
    hint: str | None = None,
    **details: Any,
) -> CompileError:
    """An error that points at `text[at : at + length]`: in the user's file when the text is found there."""
    exact = _find_in_source(text, at, length, place)
    notes = [] if exact or not text else [f'in "{text}"\n' + " " * (len('note: in "') + at) + "^" * length]
    return CompileError(message, code=code, place=exact or place, notes=notes, hint=hint, **details)


def _find_in_source(text: str, at: int, length: int, place: Place | None) -> Place | None:
    line = place.source_line() if place else None
    if place is None or line is None:
        return None
    for quote in "\"'":
        start = line.find(f"{quote}{text}{quote}", place.column - 1)
        if start >= 0:
            column = start + 2 + at
            return Place(place.file, place.line, column, place.line, column + length)
    return None


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[DimItem, ...]:
    items: list[DimItem] = []
    for word in _WORD.finditer(text):
        match = _PLAIN.fullmatch(text, word.start(), word.end())
        if match is None or match["count"] == "_":
            result = _read(text)
            return _parse_with_grammar(text) if result is None else result
        if match["axis"]:
            items.append(_axis(match["axis"]))
        elif match["size"]:
            items.append(FixedAxis(_number(match["size"], match.start())))
        else:
            items.append(Pack(match["pack"], DimName(match["count"], match.start("count")) if match["count"] else None))
    return tuple(items)


_TOKEN = re.compile(rf"\s*(?:(?P<name>{_NAME})|(?P<number>[0-9]+)|(?P<sign>//|[-+*%(){{}},]))")
_READ = 120  # characters: the reader calls itself for what stands in parentheses


class _NotRead(Exception):
    """The reader does not understand a text."""


def _read(text: str) -> tuple[DimItem, ...] | None:
    """The items of a text without a mistake; None where there may be one."""
    if len(text) > _READ:
        return None
    items, end = list[DimItem](), -1
    try:
        reader = _DimReader(text)
        while reader.kind:
            if reader.start == end:
                return None  # a blank is missing
            items.append(reader.joined())
            end = reader.end
    except _NotRead:
        return None
    return tuple(items)


class _DimReader:
    """Reads expressions from left to right.

    Attributes:
        kind, token, start: what comes next; "" at the end of the text.
        end: where the token before it ends.
    """

    def __init__(self, text: str) -> None:
        self.text, self.end, self.next_end = text.rstrip(), 0, 0
        self.step()

    def step(self) -> str:
        """Goes on by a token; gives the one that was next."""
        token = getattr(self, "token", "")
        self.end = self.next_end
        match = _TOKEN.match(self.text, self.end)
        if match is None and self.end < len(self.text):
            raise _NotRead
        self.kind, self.token, self.start = "", "", len(self.text)
        if match is not None:
            self.kind = str(match.lastgroup)
            self.token, self.start, self.next_end = match[self.kind], match.start(self.kind), match.end()
        return token

    def need(self, sign: str) -> None:
        if self.kind != "sign" or self.step() != sign:
            raise _NotRead

    def joined(self) -> DimItem:
        """The next item; items with operators between blanks, `n - k + 1`, are one expression."""
        start, first = self.start, self.item()
        if not self.is_operator():
            return first
        operands, signs = [_expression_of(first, start)], list[str]()
        while self.is_operator():
            signs.append(self.step())
            start = self.start
            operands.append(_expression_of(self.item(), start))
        for level in (("*", "//", "%"), ("+", "-")):
            k = 0
            while k < len(signs):
                if signs[k] in level:
                    operands[k : k + 2] = [DimOperation(signs.pop(k), operands[k], operands[k + 1])]
                else:
                    k += 1
        return Computed(operands[0])

    def is_operator(self) -> bool:
        """Whether an operator comes next that has a blank before and after it."""
        if self.token not in _OPERATORS:
            return False
        around = self.text[self.start - 1 : self.start], self.text[self.next_end : self.next_end + 1]
        return all(character.isspace() for character in around)

    def item(self) -> DimItem:
        if self.kind == "name":
            return _axis(self.step())
        if self.kind == "number":
            return FixedAxis(self.number())
        if self.token == "*":
            self.step()
            if self.kind != "name" or self.start != self.end:
                raise _NotRead
            return Pack(self.step(), self.enclosed("{", "}") if self.token == "{" else None)
        return Computed(self.enclosed("(", ")"))

    def enclosed(self, first: str, last: str) -> Expression:
        self.need(first)
        result = self.sum()
        self.need(last)
        return result

    def number(self) -> int:
        if len(self.token) > 18:
            raise _NotRead
        return int(self.step())

    def sum(self) -> Expression:
        result = self.product()
        while self.token in ("+", "-"):
            result = DimOperation(self.step(), result, self.product())
        return result

    def product(self) -> Expression:
        result = self.unary()
        while self.token in ("*", "//", "%"):
            result = DimOperation(self.step(), result, self.unary())
        return result

    def unary(self) -> Expression:
        if self.token == "-":
            self.step()
            return Negate(self.unary())
        if self.kind == "number":
            return DimNumber(self.number())
        if self.kind != "name":
            return self.enclosed("(", ")")
        start, name = self.start, self.step()
        if self.token == "(":
            return self.call(name)
        if name == "_":
            raise _NotRead
        return DimName(name, start)

    def call(self, name: str) -> Expression:
        self.need("(")
        arguments = [self.sum()]
        while self.token == ",":
            self.step()
            arguments.append(self.sum())
        self.need(")")
        least, most = FUNCTIONS.get(name, (len(arguments) + 1, None))
        if len(arguments) < least or (most is not None and len(arguments) > most):
            raise _NotRead
        return FunctionCall(name, tuple(arguments))


def _expression_of(item: DimItem, start: int) -> Expression:
    if isinstance(item, Axis):
        return DimName(item.name, start)
    if isinstance(item, FixedAxis):
        return DimNumber(item.size)
    if isinstance(item, Computed):
        return item.expression
    raise _NotRead


def _axis(name: str) -> DimItem:
    return AnyAxis() if name == "_" else Axis(name)


@cache
def _parser() -> lark.Lark:
    with shielded():
        import lark

    return lark.Lark(_GRAMMAR, parser="lalr", propagate_positions=True)


def _parse_with_grammar(text: str) -> tuple[DimItem, ...]:
    import lark

    try:
        tree = _parser().parse(text)
    except lark.UnexpectedInput as error:
        raise _explain(text, error) from None
    end = -1
    for item in tree.children:
        assert isinstance(item, lark.Tree)
        start = item.meta.start_pos
        if start == end:
            raise _Mistake("a blank is missing", start, hint="write blanks between dims, and (2*n) for an expression")
        end = item.meta.end_pos
    return tuple(_build_item(item) for item in tree.children)


def _explain(text: str, error: lark.UnexpectedInput) -> _Mistake:
    at = error.pos_in_stream if error.pos_in_stream is not None else len(text)
    token = str(getattr(error, "token", "")) or text[at : at + 1]
    if getattr(getattr(error, "token", None), "type", "") == "$END" or at >= len(text):
        return _Mistake("an expression does not end", len(text.rstrip()), hint="close it with ) or }")
    depth = text.count("(", 0, at) - text.count(")", 0, at) + text.count("{", 0, at) - text.count("}", 0, at)
    hint = None
    if token == "/":
        hint = "write // for a division that rounds down"
    elif depth == 0 and token == ",":
        hint = "separate dims by blanks"
    elif depth == 0 and token == "-" and text[at + 1 : at + 2].isdigit():
        hint = "write _ for one axis of any size"
    elif depth == 0 and text.startswith("...", at):
        token, hint = "...", "write *name for any number of axes"
    elif depth == 0 and token in (*_OPERATORS, "{"):
        hint = "put an expression in parentheses, as in (2*n + 1)"
    return _Mistake(f"unexpected {token!r}", at, len(token), hint)


def _build_item(tree: Any) -> DimItem:
    first = tree.children[0]
    match tree.data:
        case "axis":
            return _axis(str(first))
        case "size":
            return FixedAxis(_number(str(first), first.start_pos))
        case "pack":
            count = _build(tree.children[1]) if len(tree.children) > 1 else None
            return Pack(str(first)[1:], count)
    return Computed(_build(first))


def _build(tree: Any) -> Expression:
    first = tree.children[0]
    match tree.data:
        case "number":
            return DimNumber(_number(str(first), first.start_pos))
        case "name":
            if first == "_":
                raise _Mistake("'_' has no value", first.start_pos, hint="give the axis a name")
            return DimName(str(first), first.start_pos)
        case "negate":
            return Negate(_build(first))
        case "binary":
            return DimOperation(str(tree.children[1]), _build(first), _build(tree.children[2]))
    return _build_call(first, tuple(_build(argument) for argument in tree.children[1:]))


def _number(digits: str, at: int) -> int:
    if len(digits) > 18:  # the largest of 18 digits is an Int, and no size comes near it
        raise _Mistake("a number that is too large", at, len(digits))
    return int(digits)


def _build_call(function: Any, arguments: tuple[Expression, ...]) -> Expression:
    if function not in FUNCTIONS:
        known = ", ".join(FUNCTIONS)
        raise _Mistake(f"unknown function {str(function)!r}", function.start_pos, len(function), f"there are {known}")
    least, most = FUNCTIONS[function]
    if len(arguments) < least or (most is not None and len(arguments) > most):
        wanted = f"{least}" if most == least else f"at least {least}"
        raise _Mistake(f"{function} takes {wanted} arguments", function.start_pos, len(function))
    return FunctionCall(str(function), arguments)
