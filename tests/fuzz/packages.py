"""Hostile packages: mutants of good ones, with checksums mended, each loaded and run in a child process.

    python tests/fuzz/packages.py --mutants 10000 [--seed 1]

Four kinds, by what is changed: the container (`zip`), the manifest (`manifest`), the portable program (`program`), the
shared object with its table of reports (`code`). CRC-32, sizes and SHA-256 are made to fit again, so that each change
comes as far as it can. A mutant has to be refused with an error of Einkorn's own, or to work; where the code or the
container was changed, with the same results. A child that dies or does not answer, and any other exception, is a find.

Not changed are machine code, its constants, and what says which of it runs (the entry's address, the functions that are
called): code that writes these writes the code.

The exit status is 1 when something was found.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

KINDS = ("zip", "manifest", "program", "code")
PATIENCE = 10.0  # seconds in which a mutant is to be refused, or loaded
RENEW = 250  # mutants after which the child is replaced
Members = list[tuple[str, bytes]]

KERNELS = '''
from typing import TypeVar

from einkorn.dsl import *

T = TypeVar("T", bound=Floating)
SCALES = (1.5, (2, True), "text", float32)


@struct
class Pair:
    low: float64
    high: float64 = 1.0

    def width(self):
        return self.high - self.low


WHOLE = Pair(0.0, 4.0)


def helper(x, *, scale: int = 2):
    total = x
    for k, j in enumerate(range(scale)):
        if k > 1 and j < 3 or not k == j:
            break
        total += x if k < j <= 3 else -x
    return total


@register("mixed")
def mixed(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], *, k: int = 3) -> None:
    """Constants, structs, helpers, a report."""
    assert x.shape[0] < 1000, f"too many elements: {x.shape[0]:5d}"
    low = min(v for v in (1, 2, 3) if v > 1)
    a, (b, c) = k, (SCALES[1][0], low)

    def element(i):
        return (x[i].cast(float64) * SCALES[0] + WHOLE.width() + a * b // c + helper(exp(1.0))).cast(T)

    foreach(out, element)


@register("sums")
def sums(out: OutputTensor[T, "m"], x: InputTensor[T, "m n"]) -> None:
    def row(i):
        total: T = 0
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total

    parallel_for(x.shape[0], row)


@register("kept")
def kept(out: OutputTensor[T, "k"], x: InputTensor[T, "n"], *, least: float = 0.5) -> None:
    m: Int = 0
    for i in range(x.shape[0]):
        if x[i] > T(least):
            out[m] = x[i]
            m += 1


@kept.shape
def kept_shape(x, *, least):
    m: Int = 0
    for i in range(x.shape[0]):
        if x[i] > T(least):
            m += 1
    return m
'''
RANKS = {"mixed": 1, "sums": 2, "kept": 1}


# *** the child ***


def serve() -> None:
    """Loads and runs one package after the other: a line with its path and an op in, a line with the outcome out."""
    import numpy as np

    from einkorn.dsl.diagnostics.errors import EinkornError
    from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

    def outcome(path: str, op: str, shape: list[int], say: Callable[[Any], None]) -> None:
        x = (np.arange(np.prod(shape), dtype=np.float32) * 0.37 % 1).reshape(shape)
        stage = "load"
        try:
            device = DeviceRef.CPU()
            kind = TensorType(DType.float32, [f"d{k}" for k in range(len(shape))], device)
            graph = Graph(
                "mutant", forward=lambda v: ops.custom(op, device=device, values=[v])[0],
                input_types=[kind], custom_extensions=[path],
            )  # fmt: skip
            model = InferenceSession().load(graph)
            say(["loaded", model.code.tier])
            stage = "run"
            result = model(x)[0].to_numpy()
            say(["done", hashlib.sha256(result.tobytes() + str(result.shape).encode()).hexdigest()])
        except EinkornError as error:
            each = getattr(error, "errors", [error])
            say(["refused" if not each[0].code.startswith("EK09") else "fault", each[0].code, str(error)[:600]])
        except BaseException as error:
            import traceback

            where = traceback.extract_tb(error.__traceback__)[-1]
            say(["raw", stage, f"{type(error).__name__}: {error}"[:300], f"{Path(where.filename).name}:{where.lineno}"])

    answers = os.dup(1)
    os.dup2(2, 1)  # what a mutant prints is no answer
    for line in sys.stdin:
        request = json.loads(line)
        outcome(*request, lambda value: os.write(answers, json.dumps(value).encode() + b"\n"))


class Child:
    """A process that loads mutants; replaced when it dies or does not answer."""

    def __init__(self, cache: Path, **environment: str) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.served = 0
        self.environment = {"EINKORN_CACHE_DIR": str(cache), "EINKORN_NUM_THREADS": "1", **environment}
        self.rest = b""

    def start(self) -> None:
        environment = {**os.environ, **self.environment}
        command = [sys.executable, __file__, "--serve"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self.served, self.rest = 0, b""

    def line(self, patience: float) -> list[Any] | None:
        """The next answer; [] when the process has ended, None when none came in time."""
        assert self.process is not None and self.process.stdout is not None
        end = time.monotonic() + patience
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return None
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return []
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        actual: list[Any] = json.loads(line)
        return actual

    def check(self, path: Path, op: str) -> list[Any]:
        """What became of a package: done with a digest, refused, a fault, raw, death, hang, or slow: it runs long."""
        if self.process is None or self.served >= RENEW:
            self.stop()
            self.start()
        self.served += 1
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(path), op, [7, 5][: RANKS[op]]]).encode() + b"\n")
        self.process.stdin.flush()
        first = self.line(PATIENCE + (60 if self.served == 1 else 0))
        answer = self.line(PATIENCE) if first and first[0] == "loaded" else first
        if answer:
            return answer
        status = self.process.poll() if answer is None else self.process.wait()
        self.stop()
        if answer is None:
            return ["slow" if first else "hang"]
        return ["death", status, "run" if first else "load"]

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


# *** packing ***


def unpacked(path: Path) -> Members:
    from einkorn.dsl.package.archive import Archive

    archive = Archive(path)
    return [(name, archive.read(name)) for name in archive.members]


def packed(members: Members) -> bytes:
    """A container as Einkorn writes it, whatever is in it."""
    from einkorn.dsl.package.archive import _END, _central_header, _local_header

    body, directory = b"", b""
    for name, data in members:
        raw = name.encode("utf-8", "surrogatepass")
        directory += _central_header(raw, zlib.crc32(data), len(data), len(body))
        body += _local_header(raw, zlib.crc32(data), len(data)) + data
    return body + directory + _END.pack(b"PK\5\6", 0, 0, len(members), len(members), len(directory), len(body), 0)


def with_member(members: Members, name: str, data: bytes) -> Members:
    """The members with one replaced; the manifest says its new size and SHA-256."""
    changed = [(n, data if n == name else d) for n, d in members]
    manifest = json.loads(changed[0][1])
    for record in places(manifest):
        value = record[1]
        if type(value) is dict and value.get("member") == name:
            value.update(sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    changed[0] = (changed[0][0], json.dumps(manifest).encode())
    return changed


# *** mutation ***

STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 64, 2**31, 2**63, 10**30, 10**4000, 0.5, -0.0, float("nan"), float("inf"), "", "x",
    "x y", "class", "\ud800", "\0", "ä" * 500, "a" * 100_000, "../x", "/dev/zero", "float32", [], {}, [[]], {"t": []},
    {"t": [[]]}, {"f": "nan"}, {"f": "x"}, ["Name", [1, 1, 1, 1], "x"], ["Wrong", [1, 1, 1, 1]], ["constant", 1],
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in a JSON value, with the way to it."""
    yield path, value
    parts = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def changed_json(data: bytes, rng: random.Random) -> bytes:
    """A JSON text with one to three values changed, moved, left out, doubled or nested."""
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        ways = [way for way, _ in places(value) if way]
        if not ways:
            break
        way, other = rng.choice(ways), rng.choice(ways)
        owner = at(value, way[:-1])
        match rng.randrange(9):
            case 0 | 1:
                owner[way[-1]] = copy.deepcopy(rng.choice(STRANGE))
            case 2 | 3:
                owner[way[-1]] = copy.deepcopy(at(value, other))
            case 4:
                del owner[way[-1]]
            case 5 if type(owner) is list:
                owner.insert(rng.randrange(len(owner) + 1), copy.deepcopy(at(value, other)))
            case 6 if type(owner[way[-1]]) is int:
                owner[way[-1]] += rng.choice((-2, -1, 1, 2, 1000))
            case 7 if type(owner[way[-1]]) is str and owner[way[-1]]:
                text = owner[way[-1]]
                k = rng.randrange(len(text))
                owner[way[-1]] = text[:k] + rng.choice(("", "_", " ", "é", "[", "9", ":")) + text[k + 1 :]
            case 8:
                for _ in range(rng.choice((3, 30, 300, 3000))):
                    owner[way[-1]] = [owner[way[-1]]] if rng.random() < 0.5 else {"t": [owner[way[-1]]]}
                    if rng.random() < 0.01:
                        break
            case _:
                owner[way[-1]] = rng.choice(STRANGE)
    text = nested_text(value)
    if rng.random() < 0.05:
        k = rng.randrange(len(text))
        text = text[:k] + rng.choice((b"{", b"}", b",", b'"', b"\xff", b"1e999", b'"a":1,"a":2', b"NaN")) + text[k:]
    return text


def changed_tree(data: bytes, rng: random.Random) -> bytes:
    """A program in which nodes stand in the places of others, so that most still read as programs."""
    value = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        nodes = [(w, v) for w, v in places(value) if type(v) is list and v and v[0] in NODES and w[0] == "functions"]
        way, old = rng.choice(nodes)
        alike = [
            v
            for _, v in nodes
            if (v[0] in STATEMENTS) is (old[0] in STATEMENTS) and (v[0] in PARTS) is (old[0] in PARTS)
        ]
        owner = at(value, way[:-1])
        if rng.random() < 0.8 or len(old) < 3:
            owner[way[-1]] = copy.deepcopy(rng.choice(alike))
        else:  # its own fields, exchanged or changed
            k = rng.randrange(2, len(old))
            if type(old[k]) is int:
                old[k] = rng.choice((0, 1, -1, 3, 2**31, 2**63, -(2**63), 2**64, 10**30, rng.randrange(60)))
            elif type(old[k]) is str:
                old[k] = rng.choice(("x", "i", "k", "out", "element", "shape", "cast", "add", "sub", "shl", "lt", "eq"))
            elif old[k] is None or rng.random() < 0.3:
                old[k] = copy.deepcopy(rng.choice(alike)) if rng.random() < 0.5 else None
            else:
                other = rng.randrange(2, len(old))
                old[k], old[other] = old[other], old[k]
    if rng.random() < 0.2:
        entries = value["globals"]
        entries[rng.randrange(len(entries))] = copy.deepcopy(rng.choice(entries))
    return json.dumps(value, sort_keys=True).encode()


STATEMENTS = (
    "Assign",
    "AugAssign",
    "If",
    "For",
    "While",
    "Break",
    "Continue",
    "Return",
    "Expression",
    "Assert",
    "Raise",
)
PARTS = ("Param", "Keyword", "Clause", "Method", "Function", "Struct")
NODES = (
    *(*STATEMENTS, *PARTS, "Constant", "Name", "Global", "Attribute", "Slice", "Subscript", "Call", "Binary", "Unary"),
    *("Compare", "Logical", "Conditional", "Tuple", "Generator", "Starred", "Formatted", "Lambda"),
)


def nested_text(value: Any) -> bytes:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        return json.dumps(value, sort_keys=True).encode()
    finally:
        sys.setrecursionlimit(limit)


def at(value: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        value = value[key]
    return value


def changed_zip(data: bytes, members: Members, rng: random.Random) -> bytes:
    """A container with its bytes, its headers, or its members changed."""
    match rng.randrange(8):
        case 0:
            k = rng.randrange(len(data))
            return data[:k] + bytes([data[k] ^ 1 << rng.randrange(8)]) + data[k + 1 :]
        case 1:
            return data[: rng.randrange(len(data))]
        case 2:
            k = rng.randrange(len(data))
            return data[:k] + rng.randbytes(rng.choice((1, 4, 100))) + data[k:]
        case 3:  # a field of a header
            start = [k for k in range(len(data) - 4) if data[k : k + 4] in (b"PK\1\2", b"PK\3\4", b"PK\5\6")]
            k = rng.choice(start) + rng.randrange(46)
            value = rng.choice((0, 1, 8, 255, 65535, 2**32 - 1, rng.randrange(2**32)))
            return data[:k] + struct.pack("<I", value)[: rng.choice((1, 2, 4))] + data[k + 4 :]
        case 4:
            shuffled = members[:]
            a, b = rng.randrange(len(shuffled)), rng.randrange(len(shuffled))
            shuffled[a], shuffled[b] = shuffled[b], shuffled[a]
            return packed(shuffled)
        case 5:
            names = (
                "",
                "/x",
                "../x",
                "a\\b",
                "C:x",
                "a//b",
                "manifest.json",
                "MANIFEST.JSON",
                "x" * 2000,
                "\ud800",
                "é",
            )
            k = rng.randrange(len(members))
            return packed([(rng.choice(names) if n == k else name, d) for n, (name, d) in enumerate(members)])
        case 6:
            k = rng.randrange(len(members))
            return packed([*members[:k], *members[k + 1 :], *(members[k : k + 1] * rng.randrange(3))])
        case _:  # exchanged contents
            a, b = rng.randrange(len(members)), rng.randrange(len(members))
            return packed([(name, members[b][1] if n == a else d) for n, (name, d) in enumerate(members)])


def code_fields(data: bytes) -> list[tuple[int, int]]:
    """(offset, size) of the fields of a shared object that the loader or the runtime reads, and of no others."""
    fields = [(0, 4), (4, 1), (5, 1), (6, 1), (7, 1), (8, 8), (16, 2), (18, 2), (20, 4), (24, 8), (32, 8), (48, 4)]
    fields += [(52, 2), (54, 2), (56, 2)]
    count = struct.unpack_from("<H", data, 56)[0]
    for number in range(count):
        start = 64 + 56 * number
        fields += [(start, 4), (start + 4, 4), *((start + k, 8) for k in (8, 16, 32, 40, 48))]
    dynamic = next(64 + 56 * n for n in range(count) if struct.unpack_from("<I", data, 64 + 56 * n)[0] == 2)
    offset, size = struct.unpack_from("<Q", data, dynamic + 8)[0], struct.unpack_from("<Q", data, dynamic + 32)[0]
    fields += [(offset + k, 8) for k in range(0, size, 8)]
    entries = dict(struct.iter_unpack("<QQ", data[offset : offset + size]))
    buckets, symbols = struct.unpack_from("<2I", data, entries[4])
    fields += [(entries[4] + 4 * k, 4) for k in range(2 + buckets + symbols)]
    for number in range(symbols):  # not where a function lies, and not which one is called
        start = entries[6] + 24 * number
        fields += [(start + 4, 1), (start + 5, 1), (start + 6, 2), (start + 16, 8)]
    fields += [(entries[7] + k + part, 8) for k in range(0, entries.get(8, 0), 24) for part in (8,)]
    fields += [(entries[5] + k, 1) for k in range(entries[10])]
    return fields


def changed_code(data: bytes, rng: random.Random) -> bytes:
    """A shared object with one or two fields, or its reports, changed, or cut."""
    out = bytearray(data)
    match rng.randrange(8):
        case 0:
            return bytes(out[: rng.randrange(len(out))])
        case 1:
            start = data.index(b'[["') if b'[["' in data else -1
            if start >= 0:
                end = data.index(b"\0", start)
                table = changed_json(data[start:end], rng)
                if len(table) <= end - start:
                    out[start:end] = table.ljust(end - start)
                return bytes(out)
        case 2:
            return rng.choice((b"", b"\x7fELF", b"\0" * len(data), data[:64], b"#!/bin/sh\n", rng.randbytes(4096)))
    fields = code_fields(data)
    for _ in range(rng.choice((1, 1, 2))):
        at_, size = rng.choice(fields)
        old = int.from_bytes(out[at_ : at_ + size], "little")
        copied, width = rng.choice(fields)
        near = old + rng.choice((-4096, -16, -8, -1, 1, 8, 16, 4096))
        other = int.from_bytes(out[copied : copied + width], "little")
        extremes = (0, 1, 2, 3, 0xFF, 0xFFFF, 2**31, 2**32 - 1, 2**63, 2**64 - 1, len(data), rng.randrange(2**64))
        new = rng.choice((*extremes, near, near, other, old ^ 1 << rng.randrange(8 * size)))
        out[at_ : at_ + size] = (new % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(out)


class Mutants:
    """Makes mutants of one package, which it builds."""

    def __init__(self, folder: Path) -> None:
        from einkorn.compiler.build import build_package

        (folder / "kernels.py").write_text(KERNELS)
        listed = folder / "instances.json"
        listed.write_text(json.dumps({"mixed": [{}], "sums": [{}], "kept": [{}]}))
        build_package(str(folder / "kernels.py"), str(folder / "good.pkg"), ["x86-64-v2"], instances=str(listed))
        self.folder = folder
        self.path = folder / "good.pkg"
        self.data = self.path.read_bytes()
        self.members = unpacked(self.path)

    def make(self, kind: str, number: int, seed: int) -> tuple[Path, str, bytes]:
        """A mutant: its file, the op that is requested, and its bytes."""
        rng = random.Random(f"{seed} {kind} {number}")
        op = rng.choice(tuple(RANKS))
        if kind == "zip":
            data = changed_zip(self.data, self.members, rng)
        elif kind == "manifest":
            data = packed([(self.members[0][0], changed_json(self.members[0][1], rng)), *self.members[1:]])
        elif kind == "program":
            name = f"program/{op}.json"
            change = rng.choice((changed_json, changed_tree, changed_tree))
            changed = with_member(self.members, name, change(dict(self.members)[name], rng))
            # Without its code, so that the program is compiled.
            manifest = json.loads(changed[0][1])
            manifest["variants"] = []
            bare = [(n, d) for n, d in changed if not n.startswith("code/")]
            data = packed([(bare[0][0], json.dumps(manifest).encode()), *bare[1:]])
        else:
            name = next(n for n, _ in self.members if n.startswith(f"code/x86-64-v2/{op}-"))
            data = packed(with_member(self.members, name, changed_code(dict(self.members)[name], rng)))
        path = self.folder / f"{kind}.pkg"
        path.write_bytes(data)
        return path, op, data


def judged(kind: str, answer: list[Any], wanted: str) -> str:
    """`same`, `other` (a program that computes something else), `refused`, `slow`, or what makes it a find."""
    if answer[0] != "done":
        return str(answer[0])
    if answer[1] == wanted:
        return "same"
    return "other" if kind == "program" else "differs"


FINE = ("same", "other", "refused", "slow")


def campaign(
    mutants: int,
    seed: int,
    folder: Path,
    kinds: tuple[str, ...] = KINDS,
    show: Callable[[str], None] = lambda text: None,
) -> tuple[dict[str, Counter[str]], list[str]]:
    """So many mutants, of each kind by turns: the outcomes by kind, and the finds."""
    made = Mutants(folder)
    # Programs are compiled; everything else has to do with the code that it brings, and without a compiler.
    children = {kind: Child(folder / "cache") for kind in ("program",)}
    children |= dict.fromkeys(("zip", "manifest", "code"), Child(folder / "cache of code", EINKORN_NO_JIT="1"))
    wanted = {op: children["code"].check(made.path, op)[1] for op in RANKS}
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    finds: dict[str, str] = {}
    for number in range(mutants):
        kind = kinds[number % len(kinds)]
        path, op, data = made.make(kind, number, seed)
        answer = children[kind].check(path, op)
        actual = judged(kind, answer, wanted[op])
        outcomes[kind][f"{actual} {answer[1]}" if actual == "refused" else actual] += 1
        if actual not in FINE:
            what = f"{kind}: {actual} {answer[1:3] if actual != 'fault' else answer[2][:200]}"
            if what not in finds:
                finds[what] = f"{what} {answer[-1]} (seed {seed}, mutant {number}, op {op})"
                (folder / f"find-{kind}-{number}.pkg").write_bytes(data)
                show(finds[what])
        if number % 500 == 499:
            show(f"{number + 1} mutants, {len(finds)} finds")
    for child in children.values():
        child.stop()
    return outcomes, list(finds.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return 0
    folder = options.folder or Path(tempfile.mkdtemp(prefix="einkorn-packages-"))
    folder.mkdir(parents=True, exist_ok=True)
    say = lambda text: print(text, flush=True)  # noqa: E731
    outcomes, finds = campaign(options.mutants, options.seed, folder, tuple(options.kinds.split(",")), say)
    for kind, counts in outcomes.items():
        print(
            f"{kind:9} {sum(counts.values()):6} mutants: "
            + ", ".join(f"{n} {what}" for what, n in counts.most_common())
        )
    print(f"{len(finds)} finds" + (f", in {folder}" if finds else ""))
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
