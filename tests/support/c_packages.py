"""Compares what C and Python accept of packages: mutants of a signed one, under a policy that requires its signature.

Those that are accepted are executed by the C API, with memory of the program's, which is all given back.

cd tests && python -m support.c_packages 100000 [SEED]

With sanitizers, which have to be loaded before Python:

LD_PRELOAD="$(cc -print-file-name=libasan.so) $(cc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \\
    python -m support.c_packages 5000 1 -fsanitize=address,undefined -fno-sanitize-recover=all
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.package.archive import Archive, Content, write_archive
from einkorn.dsl.package.container import read_package
from einkorn.dsl.package.keys import PrivateKey, generate_key
from einkorn.dsl.package.trust import PREFIX
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.c_api.building import FLAGS, INCLUDE, LIBRARIES, SOURCES, build_runtime

VALUES = (0, 1, 2, 0xFF, 0x7F, 0x80, 20, 45, 0xFFFF)
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    1.5,
    1 << 70,
    "",
    "x",
    "int8",
    [],
    {},
    [1],
    {"a": 1},
    "../x",
    "manifest.json",
)


def build_inner(folder: Path, *flags: str) -> ctypes.CDLL:
    """The C API as a library whose inner functions are callable, too."""
    build_runtime(folder / "runtime")
    library = folder / "inner.so"
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    include = [f"-I{folder / 'runtime' / 'include'}"]
    command = [shutil.which("cc") or "cc", *FLAGS, *flags, "-fvisibility=default", "-DHIDDEN=", *include, "-shared"]
    subprocess.run([*command, "-o", str(library), *sources, *LIBRARIES], check=True)
    assert INCLUDE.is_dir()
    return ctypes.CDLL(str(library))


ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
RESULTS = (
    *("newStatus", "newRuntimeConfig", "newRuntimeContext", "newCompileConfig", "compileModelSync", "initModel"),
    *("newTensorSpec", "newAsyncTensorMap", "executeModelSync", "getTensorByNameFrom", "getTensorData"),
)


class Memory:
    """The memory of a program, for `einkorn_set_allocator`.

    Attributes:
        held: blocks that were not given back, by their addresses.
        given: how many blocks there were.
    """

    def __init__(self) -> None:
        self.held: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.given = 0
        self.functions = ALLOCATE(self._allocate), RELEASE(self._release)

    def _allocate(self, user: int | None, alignment: int, size: int) -> int:
        block = ctypes.create_string_buffer(size + alignment)
        address = -(-ctypes.addressof(block) // alignment) * alignment
        self.held[address] = block
        self.given += 1
        return address

    def _release(self, user: int | None, address: int) -> None:
        del self.held[address]


class Runtime:
    """Calls the C API by ctypes."""

    def __init__(self, library: ctypes.CDLL, trust: Path | None = None, memory: Memory | None = None) -> None:
        self.library = library
        for name in RESULTS:
            getattr(library, f"M_{name}").restype = ctypes.c_void_p
        library.M_getTensorNumElements.restype = ctypes.c_size_t
        library.M_getError.restype = ctypes.c_char_p
        self.status = ctypes.c_void_p(library.M_newStatus())
        config = ctypes.c_void_p(library.M_newRuntimeConfig())
        if memory is not None:
            library.einkorn_set_allocator(config, *memory.functions, None)
        if trust is not None:
            library.einkorn_set_trust(config, os.fsencode(trust))
        self.context = ctypes.c_void_p(library.M_newRuntimeContext(config, self.status))
        library.M_freeRuntimeConfig(config)

    def load(self, path: Path) -> str:
        """Loads a model; the text of its failure, or nothing."""
        config = ctypes.c_void_p(self.library.M_newCompileConfig())
        self.library.M_setModelPath(config, os.fsencode(path))
        model = self.library.M_compileModelSync(self.context, ctypes.byref(config), self.status)
        text: str = self.library.M_getError(self.status).decode(errors="replace")
        assert bool(model) == (not text)
        self.library.M_freeCompiledModel(ctypes.c_void_p(model))
        return text

    def execute(self, path: Path, x: np.ndarray) -> bytes | str:
        """The elements of output `y` of a model for its input `x` of float32, or the text of a failure."""
        api, pointer, status = self.library, ctypes.c_void_p, self.status
        config = pointer(api.M_newCompileConfig())
        api.M_setModelPath(config, os.fsencode(path))
        compiled = pointer(api.M_compileModelSync(self.context, ctypes.byref(config), status))
        model = pointer(api.M_initModel(self.context, compiled, None, status))
        shape = (ctypes.c_int64 * x.ndim)(*x.shape)
        spec = pointer(api.M_newTensorSpec(shape, ctypes.c_int64(x.ndim), api.dtype_of(b"float32"), b"x", None))
        inputs = pointer(api.M_newAsyncTensorMap(self.context))
        api.M_borrowTensorInto(inputs, pointer(x.ctypes.data), spec, status)
        outputs = pointer(api.M_executeModelSync(self.context, model, inputs, status))
        tensor = pointer(api.M_getTensorByNameFrom(outputs, b"y", status) if outputs else None)
        result: bytes | str = api.M_getError(status).decode(errors="replace")
        if tensor:
            result = ctypes.string_at(api.M_getTensorData(tensor), 4 * api.M_getTensorNumElements(tensor))
        for name, each in (("Tensor", tensor), ("AsyncTensorMap", outputs), ("AsyncTensorMap", inputs),
                           ("TensorSpec", spec), ("Model", model), ("CompiledModel", compiled)):  # fmt: skip
            getattr(api, f"M_free{name}")(each)
        return result


def signed_package(folder: Path) -> tuple[Path, list[PrivateKey]]:
    """A package, signed by the first of two keys, and a policy `trust.toml` that requires that."""
    for name in ("ours", "other"):
        generate_key(folder / f"{name}.pem")
    keys = [PrivateKey(folder / f"{name}.pem") for name in ("ours", "other")]
    (folder / "trust.toml").write_text(
        f'revoked = []\n[keys]\nours = "{keys[0].public.inline}"\n'
        '[[package]]\nname = "*"\nkeys = ["ours"]\npolicy = "enforce"\n'
    )
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    graph = Graph(
        "net",
        lambda x: ops.matmul(x, ops.constant(table, DType.float32, DeviceRef.CPU())),
        [TensorType(DType.float32, ("n", 3), DeviceRef.CPU())],
    )
    InferenceSession().load(graph).export(folder / "net.pkg")
    read_package(folder / "net.pkg", check_trust=False).signed(keys[0])
    return folder / "net.pkg", keys


def bytes_changed(data: bytes, ends: list[int], draw: random.Random) -> bytes:
    """A file with some bytes changed, most of them near the beginnings and ends of members."""
    new = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        near = draw.choice(ends) + draw.randrange(-80, 120) if draw.random() < 0.8 else draw.randrange(len(new))
        at = min(max(near, 0), len(new) - 1)
        kind = draw.randrange(7)
        if kind == 0:
            new[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            new[at] = draw.choice(VALUES) & 0xFF
        elif kind == 2:
            new[at : at + 2] = draw.choice(VALUES).to_bytes(2, "little")
        elif kind == 3:
            del new[at : at + draw.choice((1, 2, 22, 64))]
        elif kind == 4:
            new[at:at] = draw.randbytes(draw.choice((1, 4, 30)))
        elif kind == 5:
            del new[at + 1 :]
        else:
            size, other = draw.choice((1, 4, 46)), draw.randrange(len(new))
            new[at : at + size] = new[other : other + size]
        if not new:
            return b"P"
    return bytes(new)


def manifest_changed(value: Any, draw: random.Random) -> Any:
    """A JSON value with one thing changed, somewhere."""
    if isinstance(value, dict) and value and draw.random() < 0.85:
        name = draw.choice(sorted(value))
        if draw.random() < 0.12:
            return {key: each for key, each in value.items() if key != name}
        if draw.random() < 0.08:
            return value | {draw.choice(("extra", "tuning", "arena", "doors")): draw.choice(ODD)}
        return value | {name: manifest_changed(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        if draw.random() < 0.15:
            return draw.choice((value[:at] + value[at + 1 :], value + value[at:], value[::-1]))
        return [*value[:at], manifest_changed(value[at], draw), *value[at + 1 :]]
    return draw.choice((*ODD, value))


def members_changed(
    members: list[tuple[str, Any]], keys: list[PrivateKey], draw: random.Random
) -> list[tuple[str, Any]]:
    """Members of a file that is written anew: other manifests with a new signature, other signatures, another order."""
    new = list(members)
    kind = draw.randrange(6)
    text = bytes(members[0][1])
    if kind < 3:
        value = manifest_changed(json.loads(text), draw)
        text = json.dumps(value, indent=draw.choice((None, 1))).encode()
        if draw.random() < 0.1:
            text = text.replace(
                b'"net"', draw.choice((b'"n\\u0065t"', b'"\\ud800"', b'"n\xff"', b'"net", "name": 1')), 1
            )
        new[0] = ("manifest.json", text)
        new = [each for each in new if not each[0].startswith("signatures/")]
        signers = draw.choice((keys[:1], keys[:1], keys, keys[1:], []))
        made = [(f"signatures/{key.public.fingerprint}", key.sign(PREFIX + text)) for key in signers]
        new += sorted(made) if draw.random() < 0.9 else made[::-1]
    elif kind == 3:
        new.pop(draw.randrange(len(new)))
    elif kind == 4:
        one, other = draw.randrange(len(new)), draw.randrange(len(new))
        new[one], new[other] = new[other], new[one]
    else:
        name, data = new[-1]
        mark = draw.choice(
            (name[:-1], name[:-1] + "0", name.upper(), f"signatures/{keys[1].public.fingerprint}", name + "/x")
        )
        new.insert(draw.choice((0, 1, len(new))), (mark, draw.choice((data, bytes(64), bytes(63)))))
    return new


def mutants(path: Path, keys: list[PrivateKey], count: int, seed: int) -> Iterator[Path]:
    """Writes one mutant after the other to one path."""
    draw = random.Random(seed)
    data, archive = path.read_bytes(), Archive(path)
    ends = [0, len(data) - 22, *(member.start for member in archive.members.values())]
    ends += [member.start + member.size for member in archive.members.values()]
    members = [(name, archive.content(name)) for name in archive.members]
    members[0] = (members[0][0], archive.read(members[0][0]))
    held = [
        (name, each if isinstance(each, bytes) else Content((bytes(each.pieces[0]),), each.aligned))
        for name, each in members
    ]
    mutant = path.with_name("mutant.pkg")
    for _ in range(count):
        if draw.random() < 0.6:
            mutant.write_bytes(bytes_changed(data, ends, draw))
        else:
            try:
                write_archive(mutant, members_changed(held, keys, draw))
            except PackageError:
                continue
        yield mutant


def python_error(path: Path) -> str:
    """The code with which Python refuses a package, or nothing."""
    try:
        package = read_package(path)
        package.verify()
        package.graph()
    except PackageError as error:
        return error.code
    return ""


NOT_IN_C = re.compile(r"has no code for C programs|is for another processor|holds ops")


def campaign(count: int, seed: int, folder: Path, *flags: str) -> Counter[str]:
    """How often both accept, both refuse, and both give the same code; AssertionError where they differ. The C API is
    compiled with `flags`."""
    path, keys = signed_package(folder)
    os.environ["EINKORN_TRUST"] = str(folder / "trust.toml")
    memory, x = Memory(), np.arange(15, dtype=np.float32).reshape(5, 3)
    runtime = Runtime(build_inner(folder, *flags), memory=memory)
    assert runtime.load(path) == "" == python_error(path)
    expected = runtime.execute(path, x)
    assert expected == (x @ np.arange(12, dtype=np.float32).reshape(3, 4)).tobytes()
    counts: Counter[str] = Counter()
    for number, mutant in enumerate(mutants(path, keys, count, seed)):
        if number % 5000 == 0:
            print(number, dict(counts), flush=True)
        mine, theirs = runtime.load(mutant), python_error(mutant)
        if bool(mine) != bool(theirs) and not (not theirs and NOT_IN_C.search(mine)):
            kept = folder / "difference.pkg"
            shutil.copy(mutant, kept)
            raise AssertionError(f"{kept}: C says {mine!r}, Python says {theirs!r}")
        if not mine:
            result = runtime.execute(mutant, x)
            counts["executed" if result == expected else f"executed: {result!r:.60}"] += 1
            assert not memory.held, f"{mutant}: {len(memory.held)} blocks of memory were not given back"
        counts["accepted" if not theirs else "refused"] += 1
        counts["same code"] += bool(theirs) and f"error[{theirs}]" in mine
    return counts


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        numbers = [int(word) for word in sys.argv[1:3]]
        print(campaign(numbers[0], *numbers[1:] or [0], Path(temporary), *sys.argv[3:]))
