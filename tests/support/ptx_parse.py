"""Reads PTX text: kernels as lists of basic blocks of instructions, and the variables of a module.

A block ends with whatever may change which threads run together: a branch, a return, a barrier; an operation of several
threads of a warp begins one. What is not known is a `PtxError` with its line. See also `support.ptx_instructions` (what
instructions do).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

WIDTHS = {"pred": 1, "b8": 8, "b16": 16, "b32": 32, "b64": 64, "b128": 128}
WIDTHS |= {f"{kind}{bits}": bits for kind in "usf" for bits in (8, 16, 32, 64)}

ENDS = {"bra", "brx", "ret", "exit", "trap"}
BARRIERS = {"bar", "barrier"}  # of a block; `bar.warp` is one of a warp
OF_A_WARP = {"shfl", "vote", "match", "redux", "elect", "activemask", "mma", "ldmatrix", "wgmma", "setmaxnreg"}


class PtxError(AssertionError):
    """The text says something that is wrong, or that is not known here."""


class Trapped(PtxError):
    """A thread has ended its kernel."""


@dataclass(frozen=True)
class Register:
    name: str


@dataclass(frozen=True)
class Special:
    """A register that the hardware fills: `tid.x`, `laneid`."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A number: the bits of a float, or an integer, which may be negative."""

    value: int
    float_bits: int = 0  # how wide the float is; 0 for integers


@dataclass(frozen=True)
class Address:
    """`[base+offset]`: the base is a register, a symbol or none."""

    base: Register | str | None
    offset: int


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, or the name of a label."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Tuple:
    """`{a, b}`, or `d|p`, or `[address, {a, b}]`."""

    parts: tuple[Operand, ...]


Operand = Register | Special | Immediate | Address | Symbol | Tuple | None  # None is `_`, which takes anything


@dataclass(frozen=True)
class Instruction:
    """`@guard name.parts operands`; the guard is a register, and whether the instruction runs where it is false."""

    line: int
    text: str
    name: str
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None = None
    negated: bool = False

    @property
    def of_a_warp(self) -> bool:
        if self.name == "tcgen05":
            return "sync" in self.parts
        return self.name in OF_A_WARP or (self.name == "bar" and self.parts[:1] == ("warp",))

    @property
    def barrier(self) -> bool:
        return self.name in BARRIERS and not self.of_a_warp

    @property
    def ends(self) -> bool:
        return self.name in ENDS or self.barrier

    def fail(self, message: str) -> PtxError:
        return PtxError(f"line {self.line}: `{self.text}`: {message}")


@dataclass
class Block:
    """Instructions that run one behind the other."""

    instructions: list[Instruction] = field(default_factory=list)


@dataclass(frozen=True)
class Variable:
    """Memory with a name: `space` is global, const, shared, local or param."""

    name: str
    space: str
    align: int
    size: int
    data: bytes = b""
    external: bool = False


@dataclass
class Kernel:
    """One kernel. `labels` give the number of a block."""

    name: str
    line: int
    parameters: list[Variable] = field(default_factory=list)
    block_size: tuple[int, int, int] | None = None
    most_registers: int = 0  # of a thread, where that is said
    registers: dict[str, int] = field(default_factory=dict)  # prefix -> bits
    variables: dict[str, Variable] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)  # targets of `brx.idx`


@dataclass
class Module:
    kernels: dict[str, Kernel] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    version: str = ""
    target: str = ""


_LABEL = re.compile(r"([$\w%.]+)\s*:(?!:)")
_LINE_DIRECTIVES = (".version ", ".target ", ".address_size ", ".file", ".loc\t", ".loc ")
_SIZED = re.compile(r"\.(reqntid|maxntid)\s+(\d+)\s*,?\s*(\d+)?\s*,?\s*(\d+)?")


def parse(text: str) -> Module:
    """The module that a text describes."""
    module = Module()
    kernel: Kernel | None = None
    depth = 0
    for line, statement in _statements(text):
        if statement == "{":
            depth += 1
        elif statement == "}":
            depth -= 1
            kernel = kernel if depth else None
        elif statement.startswith(_LINE_DIRECTIVES[:2]):
            setattr(module, statement.split()[0][1:], statement.split()[1].rstrip(","))
        elif statement.startswith(_LINE_DIRECTIVES):
            pass
        elif ".entry" in statement:
            kernel = _header(line, statement)
            module.kernels[kernel.name] = kernel
        elif kernel is None:
            for variable in _variables(line, statement):
                module.variables[variable.name] = variable
        else:
            _in_kernel(kernel, line, statement)
    return module


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Statements with their lines: directives, labels, braces, instructions without their semicolon."""
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    at, line = 0, 1
    while True:
        skipped = re.compile(r"\s*").match(text, at)
        assert skipped is not None
        line += skipped[0].count("\n")
        at = skipped.end()
        if at >= len(text):
            return
        result, end = _next(text, at, line)
        yield line, " ".join(result.split())
        line += text.count("\n", at, end)
        at = end


def _next(text: str, at: int, line: int) -> tuple[str, int]:
    """The statement that begins at a place, and where it ends."""
    if text[at] in "{};":
        return text[at].replace(";", ""), at + 1
    if label := _LABEL.match(text, at):
        return label[0], label.end()
    if text.startswith(_LINE_DIRECTIVES, at):
        end = text.find("\n", at)
        return text[at:end], end
    if text.startswith(".section", at):
        end = text.index("}", at) + 1
        return "", end
    word = re.compile(r"(\.(visible|weak|extern|entry|func)\s+)+").match(text, at)
    stops = "{;" if word and re.search(r"\.(entry|func)", word[0]) else ";"
    end = min((k for k in (text.find(stop, at) for stop in stops) if k >= 0), default=-1)
    if end < 0:
        raise PtxError(f"line {line}: a statement without an end: {text[at : at + 60]!r}")
    return text[at:end], end + (text[end] == ";")


def _header(line: int, statement: str) -> Kernel:
    """A kernel from what stands before its brace."""
    match = re.search(r"\.entry\s+([\w$.]+)\s*(?:\((.*?)\))?([^()]*)$", statement)
    if match is None:
        raise PtxError(f"line {line}: not a kernel: {statement!r}")
    kernel = Kernel(match[1], line)
    for parameter in (match[2] or "").split(","):
        if parameter.strip():
            kernel.parameters += _variables(line, parameter.strip())
    if sized := _SIZED.search(match[3]):
        kernel.block_size = (int(sized[2]), int(sized[3] or 1), int(sized[4] or 1))
    most = re.search(r"\.maxnreg\s+(\d+)", match[3])
    kernel.most_registers = int(most[1]) if most else 0
    kernel.blocks.append(Block())
    return kernel


_VARIABLE = re.compile(
    r"\.(?P<space>global|const|shared|local|param)\s+(?P<rest>.*?)(?P<name>[\w$%.]+)\s*(?P<array>(\[\d*\])*)"
    r"\s*(?:=\s*(?P<data>.*))?$"
)


def _variables(line: int, statement: str) -> list[Variable]:
    """The variables of a declaration; none for directives that say nothing about memory."""
    if not (match := _VARIABLE.search(statement)):
        if re.match(r"\.(pragma|reg|extern \.func|weak|alias)|$", statement):
            return []
        raise PtxError(f"line {line}: unknown directive: {statement!r}")
    types = [word for word in re.findall(r"\.(\w+)", match["rest"]) if word in WIDTHS]
    align = re.search(r"\.align\s+(\d+)", match["rest"].split(".ptr")[0])
    if not types:
        raise PtxError(f"line {line}: a variable without a type: {statement!r}")
    element = max(WIDTHS[types[0]] // 8, 1) * (int(v[1]) if (v := re.search(r"\.v(\d)", match["rest"])) else 1)
    count = 1
    for size in re.findall(r"\[(\d*)\]", match["array"]):
        count *= int(size or 0)
    data = _data(line, match["data"] or "", element)
    external = ".extern" in statement or "[]" in match["array"]
    size = element * count
    return [
        Variable(match["name"], match["space"], int(align[1]) if align else element, size, data.ljust(size, b"\0"))
        if not external
        else Variable(match["name"], match["space"], int(align[1]) if align else element, 0, b"", True)
    ]


def _data(line: int, text: str, element: int) -> bytes:
    """The bytes of an initialiser."""
    result = b""
    for word in re.findall(r"[^\s{},]+", text):
        operand = _operand(line, word)
        if not isinstance(operand, Immediate):
            raise PtxError(f"line {line}: an initialiser with the address of {word}")
        result += (operand.value & ((1 << 8 * element) - 1)).to_bytes(element, "little")
    return result


def _in_kernel(kernel: Kernel, line: int, statement: str) -> None:
    """A statement of a kernel's body."""
    if label := _LABEL.fullmatch(statement):
        if kernel.blocks[-1].instructions:
            kernel.blocks.append(Block())
        kernel.labels[label[1]] = len(kernel.blocks) - 1
    elif statement.startswith(".reg"):
        for prefix in re.findall(r"%?[\w$]+(?=\s*(?:<|,|$))", statement.split(None, 2)[2]):
            kernel.registers[prefix] = WIDTHS[statement.split()[1][1:]]
    elif ".branchtargets" in statement:
        raise PtxError(f"line {line}: a table of targets without a label")
    elif statement.startswith("."):
        for variable in _variables(line, statement):
            kernel.variables[variable.name] = variable
    elif statement:
        _append(kernel, _with_plain_names(kernel, _instruction(line, statement)))


def _with_plain_names(kernel: Kernel, instruction: Instruction) -> Instruction:
    """Registers of inline assembly may have names without `%`."""

    def named(operand: Operand) -> Operand:
        if isinstance(operand, Symbol) and operand.name in kernel.registers:
            return Register(operand.name)
        if isinstance(operand, Address) and isinstance(operand.base, str) and operand.base in kernel.registers:
            return Address(Register(operand.base), operand.offset)
        if isinstance(operand, Tuple):
            return Tuple(tuple(named(part) for part in operand.parts))
        return operand

    return replace(instruction, operands=tuple(named(operand) for operand in instruction.operands))


def _append(kernel: Kernel, instruction: Instruction) -> None:
    """Puts an instruction into the last block, or into one of its own."""
    if instruction.of_a_warp and kernel.blocks[-1].instructions:
        kernel.blocks.append(Block())
    kernel.blocks[-1].instructions.append(instruction)
    if instruction.ends:
        kernel.blocks.append(Block())


def _instruction(line: int, statement: str) -> Instruction:
    match = re.fullmatch(r"(?:@(!?)\s*([%\w$]+)\s+)?([a-z_]\w*)((?:(?:\.|::)\w+)*)\s*(.*)", statement)
    if match is None:
        raise PtxError(f"line {line}: not an instruction: {statement!r}")
    guard = Register(match[2]) if match[2] else None
    parts = tuple(match[4].replace("::", "__").split(".")[1:])
    operands = tuple(_operand(line, word) for word in _split(match[5]))
    return Instruction(line, statement, match[3], parts, operands, guard, match[1] == "!")


def _split(text: str) -> Sequence[str]:
    """The operands: commas within braces, brackets and parentheses divide nothing."""
    words, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "{[(") - (letter in "}])")
        if letter == "," and depth == 0:
            words.append(text[start:at])
            start = at + 1
    words.append(text[start:])
    return [word.strip() for word in words if word.strip()]


_INTEGER = re.compile(r"-?\s*(0[xX][0-9a-fA-F]+|\d+)U?")


def _operand(line: int, word: str) -> Operand:
    if word == "_":
        return None
    if word[0] == "{":
        return Tuple(tuple(_operand(line, part) for part in _split(word[1:-1])))
    if word[0] == "[":
        first, *rest = _split(word[1:-1])
        address = _address(line, first)
        return Tuple((address, *(_operand(line, part) for part in rest))) if rest else address
    if "|" in word:
        return Tuple(tuple(_operand(line, part.strip()) for part in word.split("|")))
    if word[:2] in ("0f", "0F", "0d", "0D") and len(word) in (10, 18):
        return Immediate(int(word[2:], 16), 32 if word[1] in "fF" else 64)
    if _INTEGER.fullmatch(word):
        number = word.replace(" ", "").rstrip("U")
        return Immediate(int(number, 8 if re.fullmatch(r"-?0[0-7]+", number) else 0))
    if word[0] == "%":
        return Special(word[1:]) if _is_special(word[1:]) else Register(word)
    if word == "WARP_SZ":
        return Immediate(32)
    if match := re.fullmatch(r"([$\w.]+)\s*(?:\+\s*(-?\d+))?", word):
        return Symbol(match[1], int(match[2] or 0))
    raise PtxError(f"line {line}: unknown operand {word!r}")


def _address(line: int, text: str) -> Address:
    match = re.fullmatch(r"\s*([%$\w.]+?)\s*(?:\+\s*(-?\w+))?\s*", text)
    if match is None:
        raise PtxError(f"line {line}: unknown address [{text}]")
    base, offset = match[1], int(match[2] or "0", 0)
    if base[0] == "%":
        return Address(Register(base), offset)
    if base[0].isdigit():
        return Address(None, int(base, 0) + offset)
    return Address(base, offset)


_SPECIALS = re.compile(
    r"(n?tid|n?ctaid|clusterid|nclusterid|cluster_n?ctaid)\.[xyz]|cluster_n?ctarank|laneid|n?warpid|lanemask_\w\w|"
    r"clock|clock64|globaltimer\w*|n?smid|gridid|dynamic_smem_size|total_smem_size|is_explicit_cluster"
)


def _is_special(name: str) -> bool:
    return _SPECIALS.fullmatch(name) is not None
