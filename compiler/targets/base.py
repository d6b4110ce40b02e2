"""What a target is: one frozen record of everything the compiler may ask about a machine.

Output: `Target` and the parts it is made of, and the list of features that code may ask for. Code asks features
(`target.supports("bf16_mma")`) and never compares names. Non-goals: no target is described here (one file each: `cpu`,
`nvptx`, `amdgcn`), and nothing here loads LLVM.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from ...dsl.diagnostics.errors import TargetError, did_you_mean

Kind = Literal["cpu", "cuda", "hip"]
ObjectKind = Literal["elf-so", "ptx", "hsaco"]
DebugInfo = Literal["LineTablesOnly", "DebugDirectivesOnly"]

FEATURES: Final[Mapping[str, str]] = {
    "fma": "fused multiply-add of f32 and f64 as one instruction",
    "f16c": "conversion between f16 and f32 as one instruction",
    "f16": "arithmetic on f16 as single instructions",
    "bf16": "arithmetic on bf16 as single instructions",
    "bf16_convert": "f32 to bf16 as one instruction, correctly rounded, subnormals included",
    "int8_dot": "dot product of four 8-bit integers as one instruction",
    "atomics_f32": "adding to an f32 in memory as one instruction",
    "atomics_f64": "adding to an f64 in memory as one instruction",
    "tensor_cores": "a matrix unit of any kind",
    "f16_mma": "matrix products of f16",
    "bf16_mma": "matrix products of bf16",
    "tf32_mma": "matrix products of tf32 (f32 with a mantissa of 10 bits)",
    "f64_mma": "matrix products of f64",
    "int8_mma": "matrix products of 8-bit integers",
    "fp8_mma": "matrix products of 8-bit floats",
    "async_copy": "copies from global to shared memory that run beside the thread",
    "clusters": "blocks that share their shared memory",
    "tma": "bulk tensor copies by descriptor",
    "wgmma": "matrix products of four warps from shared memory (sm_90a)",
    "tcgen05": "matrix products with tensor memory (sm_100a)",
}


# Intrinsics that every code generator turns into instructions, for every type.
COMMON_INTRINSICS: Final = tuple(
    f"llvm.{name}"
    for name in (
        *("abs", "smax", "smin", "umax", "umin", "scmp", "ucmp", "bitreverse", "bswap", "ctlz", "cttz", "ctpop"),
        *("fshl", "fshr", "sadd.sat", "uadd.sat", "ssub.sat", "usub.sat"),
        *("sadd.with.overflow", "uadd.with.overflow", "ssub.with.overflow", "usub.with.overflow"),
        *("smul.with.overflow", "umul.with.overflow"),
        *("fabs", "copysign", "fma", "sqrt", "floor", "ceil", "trunc", "rint", "nearbyint", "round", "roundeven"),
        *("minnum", "maxnum", "minimum", "maximum", "minimumnum", "maximumnum", "is.fpclass"),
        *("fptosi.sat", "fptoui.sat"),
        *("memcpy", "memmove", "memset", "prefetch", "lifetime.start", "lifetime.end"),
        *("assume", "expect", "trap", "dbg.*", "experimental.noalias.scope.decl", "vector.*"),
    )
)

# Intrinsics that a code generator without an instruction for them turns into calls of a library, or dies of.
LIBRARY_INTRINSICS: Final = frozenset(
    f"llvm.{name}"
    for name in (
        *("exp", "exp2", "exp10", "log", "log2", "log10", "pow", "powi", "ldexp", "frexp", "modf"),
        *("sin", "cos", "sincos", "sincospi", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh"),
        *("lround", "llround", "lrint", "llrint"),
    )
)


@dataclass(frozen=True)
class AddressSpaces:
    """LLVM's numbers for the kinds of memory; on a CPU they are all 0."""

    global_memory: int = 0
    shared_memory: int = 0
    stack: int = 0


@dataclass(frozen=True)
class Limits:
    """What one launch may ask for. Sizes in bytes; `shared_memory` is per block, the opt-in maximum included."""

    threads_per_block: int = 1
    block: tuple[int, int, int] = (1, 1, 1)
    grid: tuple[int, int, int] = (1, 1, 1)
    static_shared_memory: int = 0
    shared_memory: int = 0


@dataclass(frozen=True)
class GridOperations:
    """MLIR spellings of what a thread of a grid can ask and do.

    The first four are operations with one i32 result, with `{axis}` for x, y or z. `block_dim` and `grid_dim` are None
    where no register holds the value: the block size is then a constant of the kernel, and the grid is passed to it.
    `barrier` is the list of operations that make the threads of a block meet and see each other's stores.
    """

    thread_id: str
    block_id: str
    block_dim: str | None
    grid_dim: str | None
    barrier: tuple[str, ...]

    def spell(self, what: Literal["thread_id", "block_id", "block_dim", "grid_dim"], axis: str) -> str | None:
        """The operation for one axis: `spell("thread_id", "x")` is `nvvm.read.ptx.sreg.tid.x : i32` for CUDA."""
        template: str | None = getattr(self, what)
        return None if template is None else template.format(axis=axis)


@dataclass(frozen=True)
class Intrinsics:
    """Which LLVM intrinsics a target's code generator survives: others may end the process.

    `allowed` maps a base name (`llvm.fma`, or a whole family as `llvm.nvvm.*`) to the element types it takes, or to
    None for every type. `approximate` names those that need the `afn` flag on every call. `instructions` are those
    that the code generator does not survive either, or whose result is not exact.
    """

    allowed: Mapping[str, frozenset[str] | None]
    approximate: frozenset[str] = frozenset()
    instructions: tuple[str, ...] = ()

    def refusal(self, name: str) -> str | None:
        """Why `name` (as it stands in LLVM text, with its type suffixes) may not be used, or None when it may."""
        base, element = split_intrinsic(name)
        if any(base.startswith(family[:-1]) for family in self.allowed if family.endswith("*")):
            return None
        if base not in self.allowed:
            return f"{base} is not available"
        elements = self.allowed[base]
        if elements is None or element is None or element in elements:
            return None
        return f"{base} is not available for {element}"


_TYPE_SUFFIX = re.compile(r"(?:nxv\d+|v\d+)?(bf16|f16|f32|f64|i\d+|p\d+)")


def split_intrinsic(name: str) -> tuple[str, str | None]:
    """`llvm.fma.v4f32` -> (`llvm.fma`, `f32`): the base name, and the element type of the first type suffix.

    Suffixes that are part of a name (`llvm.nvvm.f2bf16.rn`) are left alone: only a trailing run of types is removed.
    """
    parts = name.split(".")
    element: str | None = None
    while len(parts) > 2 and (match := _TYPE_SUFFIX.fullmatch(parts[-1])):
        element = match[1]
        parts.pop()
    return ".".join(parts), element


@dataclass(frozen=True)
class Target:
    """One machine to compile for.

    Fields of LLVM: `triple`, `data_layout`, `cpu`, `features` (for the host the last two are empty until LLVM is
    loaded, see `llvm.processor`). `lanes` is how many threads run in lockstep (1 on a CPU), `vector_bits` the widest
    vector register of one thread. `libcalls` are the symbols that its objects may leave undefined, each with the
    shared library that has it. `identity` tells machines apart that share a name.
    """

    name: str
    kind: Kind
    triple: str
    data_layout: str
    cpu: str
    features: str
    object_kind: ObjectKind
    capabilities: frozenset[str]
    intrinsics: Intrinsics = field(hash=False, repr=False)
    lanes: int = 1
    vector_bits: int = 128
    spaces: AddressSpaces = AddressSpaces()
    atomic_scope: str = ""
    limits: Limits = Limits()
    grid: GridOperations | None = None
    libcalls: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    debug_info: DebugInfo = "LineTablesOnly"
    identity: str = ""

    @property
    def is_cpu(self) -> bool:
        return self.kind == "cpu"

    @property
    def is_gpu(self) -> bool:
        return self.kind != "cpu"

    @property
    def key(self) -> str:
        """A short text that differs whenever the code for the target would; part of every cache key."""
        record = "\n".join((self.name, self.triple, self.data_layout, self.cpu, self.features, self.identity))
        return f"{self.name}-{hashlib.sha256(record.encode()).hexdigest()[:16]}"

    def supports(self, feature: str) -> bool:
        """Whether the target has a feature of `FEATURES`.

        Raises:
            TargetError: no feature has that name.
        """
        if feature not in FEATURES:
            raise TargetError(
                f"unknown feature {feature!r}",
                code="EK0603",
                got=feature,
                notes=[f"known features: {', '.join(FEATURES)}"],
                hint=did_you_mean(feature, FEATURES),
            )
        return feature in self.capabilities

    def kernel_attributes(self, block: Sequence[int]) -> str:
        """MLIR attributes of an `llvm.func` that is launched as a grid of blocks of `block` = (x, y, z) threads.

        The text goes between the braces of `attributes {...}`; it is empty for a CPU.

        Raises:
            TargetError: the block is larger than the target allows.
        """
        if self.kind == "cpu":
            return ""
        x, y, z = (*block, 1, 1, 1)[:3]
        if x * y * z > self.limits.threads_per_block or any(
            not 1 <= size <= limit for size, limit in zip((x, y, z), self.limits.block, strict=True)
        ):
            raise TargetError(
                f"a block of {x} x {y} x {z} threads does not fit {self.name}",
                code="EK0604",
                expected=self.limits.block,
                got=(x, y, z),
                hint=f"at most {self.limits.threads_per_block} threads, and {self.limits.block} along x, y, z",
            )
        sizes = f"array<i32: {x}, {y}, {z}>"
        if self.kind == "cuda":
            return f"nvvm.kernel, nvvm.reqntid = {sizes}"
        # Without the flat size AMDGPU assumes blocks of any size up to 256 threads, and larger launches fail.
        flat = x * y * z
        return f'rocdl.kernel, rocdl.reqd_work_group_size = {sizes}, rocdl.flat_work_group_size = "{flat},{flat}"'
