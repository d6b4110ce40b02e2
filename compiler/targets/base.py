"""Describes a machine to compile for: one frozen record of everything the compiler uses of it.

Code requests features (`target.supports("bf16_mma")`) and facts (`target.has_grid`), and never compares names or kinds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal

from ...dsl.contract.code_formats import CodeFormat
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import TargetError, did_you_mean

FULL: Final = 3  # the level of LLVM's optimisation of code that is not compiled in a hurry

DebugInfo = Literal["LineTablesOnly", "DebugDirectivesOnly"]

FEATURES: Final[Mapping[str, str]] = {
    "fma": "fused multiply-add of f32 and f64 as one instruction",
    "f16c": "conversion between f16 and f32 as one instruction",
    "f16": "arithmetic on f16 as single instructions",
    "bf16": "arithmetic on bf16 as single instructions",
    "bf16_convert": "f32 to bf16 as one instruction, correctly rounded, subnormals included",
    "bf16_dot": "sum of two products of bf16 in f32 as one instruction",
    "ex2": "2**x of f32 to 2 ulp as one instruction that gives 0 for subnormals: NVIDIA's ex2.approx",
    "v_exp": "2**x of f32 to 1 ulp as one instruction that gives 0 for subnormals: AMD's v_exp_f32",
    "int8_dot": "dot product of four 8-bit integers as one instruction",
    "atomics_f32": "adding to an f32 in memory as one instruction",
    "atomics_f64": "adding to an f64 in memory as one instruction",
    "tensor_cores": "a matrix unit of any kind",
    "mma_sync": "matrix products of a warp with operands in registers, as mma.sync, and ldmatrix",
    "mfma": "matrix products of 64 lanes with operands in registers: AMD's MFMA, as gfx90a has it",
    "mfma_8_bytes": "MFMA that takes 8 bytes of an operand from a lane, of integers of 8 bits",
    "mfma_16_bytes": "MFMA that takes 16 bytes of an operand from a lane",
    "mfma_32_bytes": "MFMA that takes 32 bytes of an operand from a lane, of 8-bit floats",
    "wmma": "matrix products of 32 lanes with operands in registers: AMD's WMMA",
    "wmma_rows": "WMMA that takes whole rows of operands from a lane (RDNA 3)",
    "wmma_parts": "WMMA that takes half a row of an operand from a lane (RDNA 4)",
    "f16_mma": "matrix products of f16",
    "bf16_mma": "matrix products of bf16",
    "tf32_mma": "matrix products of tf32 (f32 with a mantissa of 10 bits)",
    "f64_mma": "matrix products of f64",
    "int8_mma": "matrix products of 8-bit integers",
    "fp8_mma": "matrix products of 8-bit floats",
    "fp8_mma_sync": "mma.sync of 8-bit floats, in a version of PTX that has it",
    "fp8_ocp": "8-bit floats with infinities or a NaN of all ones, as OCP defines them",
    "fp8_fnuz": "8-bit floats without a negative zero, whose NaN has its bits",
    "async_copy": "copies from global to shared memory that run next to the thread",
    "clusters": "blocks that share their shared memory",
    "named_barriers": "sixteen barriers a block, each for as many threads as it says",
    "tma": "bulk tensor copies by descriptor",
    "bulk_copy": "bulk copies into shared memory that arrive at barriers, in a version of PTX that has them",
    "set_registers": "four warps get registers that others give back (sm_90a and later)",
    "wgmma": "matrix products of four warps from shared memory (sm_90a)",
    "tcgen05": "matrix products with tensor memory (sm_100a)",
    "block_scaled_mma": "matrix products of a warp of 4-, 6- and 8-bit floats that blocks of elements scale (sm_120a)",
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
    cluster_memory: int = 0

    def number(self, space: str) -> int:
        """LLVM's number for a space of the language: `global`, `shared`, `stack`, `cluster` or `map`."""
        numbers = {"global": self.global_memory, "stack": self.stack, "shared": self.shared_memory, "map": 0}
        return (numbers | {"cluster": self.cluster_memory})[space]


@dataclass(frozen=True)
class Limits:
    """What one launch may request. Sizes in bytes; `shared_memory` is per block, the opt-in maximum included.

    `grid` counts blocks; `axis_threads` are the most threads along one axis of the grid, where that is what counts.
    What a device of the architecture holds at once is `multiprocessors`, and for each of them `resident_threads`,
    `resident_blocks` and `resident_shared_memory`, 0 if that is not a limit. Where no hardware runs grids, they are
    those of a large device.
    """

    threads_per_block: int = 1
    block: tuple[int, int, int] = (1, 1, 1)
    grid: tuple[int, int, int] = (1, 1, 1)
    axis_threads: int = 2**63 - 1
    static_shared_memory: int = 0
    shared_memory: int = 0
    multiprocessors: int = 132
    resident_threads: int = 2048
    resident_blocks: int = 32
    resident_shared_memory: int = 0


@dataclass(frozen=True)
class LaneMove:
    """An operation that moves the `{value}` of 32 bits between lanes.

    `{0}`, `{1}`, … are these numbers, `{poison}` is any bits, and `{true}` and `{false}` are what they say.
    """

    text: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class WarpOperations:
    """MLIR spellings of what the lanes of a warp do together, on values of 32 bits.

    Words in braces are operands: `{mask}` is the lanes that take part, as bits, `{last}` the number of the last.

    Attributes:
        lane: operations, the last of which gives the lane's number as an i32; `{before}` is what the one before gave,
            `{zero}` and `{all}` stand for 32 bits, all clear or all set.
        shuffle: the `{value}` of lane `{lane}`, which takes part; `{address}` is four times its number.
        shuffle_by: the `{value}` of the lane that `{kind}` (up, down, bfly) and `{amount}`, a number below the size of
            a warp, say, and one's own where that does not take part; `{last}` is 0 for `up`. Empty where there is no
            such operation.
        exchange: by a number below the size of a warp what gives the `{value}` of the lane whose number differs from
            one's own in these bits, one operation behind the other; of whole warps. What is not here takes `shuffle`.
        broadcast: the `{value}` of lane `{lane}`, which is known at compile time. Empty where `shuffle` does that.
        ballot: the lanes where `{predicate}` holds, as the bits of an integer with a bit for each lane.
        match: the lanes that have one's own `{value}`, in the same form. Empty where there is no such operation.
    """

    lane: tuple[str, ...]
    shuffle: str
    shuffle_by: str
    ballot: str
    match: str = ""
    exchange: Mapping[int, tuple[LaneMove, ...]] = field(default_factory=dict, hash=False)
    broadcast: str = ""


@dataclass(frozen=True)
class CopyOperations:
    """MLIR spellings of copies into shared memory that run next to a thread.

    Attributes:
        copy: by the number of bytes, 4, 8 or 16: from `{source}` to `{to}`.
        masked: the same for the first `{taken}` bytes, with zeros behind them.
        commit: the copies that are in no group yet become one.
        wait: until at most `{pending}` groups are under way.
    """

    copy: Mapping[int, str] = field(hash=False)
    masked: Mapping[int, str] = field(hash=False)
    commit: str
    wait: str


@dataclass(frozen=True)
class BulkOperations:
    """MLIR spellings of bulk copies into shared memory, and of the barriers that they arrive at.

    A barrier's phase ends when all warps of the block have arrived, and as many bytes as were announced.

    Attributes:
        begin: makes the barrier `{barrier}`, which waits for `{warps}` warps or other arrivals.
        order: what threads have written before comes before what copies write behind it.
        announce: so many `{bytes}` are going to arrive.
        copy: `{bytes}` from `{source}` to `{to}`, which arrive at the barrier.
        arrive: one warp has.
        expect: a thread has, and so many `{bytes}` are going to arrive.
        copy_box: by the number of axes of a tensor: the part of it that its `{map}` describes, from the coordinates
            `{c0}`, `{c1}`, …, innermost first, on, to `{to}`; its bytes arrive at the barrier.
        copy_box_to_all: the same to all blocks of the cluster whose bits `{blocks}` has, and to their barriers.
        arrive_there, expect_there: as `arrive` and `expect`, at a barrier of another block of the cluster.
        ended_in_cluster: as `ended`, where threads of other blocks have arrived.
        order_all: as `order`, and for what threads have written into any memory.
        fetch_map: reads a `{map}`, so that the first copy by it need not wait for that.
        ended: whether the phase of a `{parity}` has ended, as an i1; may take a while to say that it has not.
    """

    begin: str
    order: str
    announce: str
    copy: str
    arrive: str
    expect: str
    copy_box: Mapping[int, str] = field(hash=False)
    copy_box_to_all: Mapping[int, str] = field(hash=False)
    arrive_there: str
    expect_there: str
    ended_in_cluster: str
    order_all: str
    fetch_map: str
    ended: str


@dataclass(frozen=True)
class GridOperations:
    """MLIR spellings of a kernel that runs as a grid of threads, and of the operations of a thread.

    The first four are operations with one i32 result, with `{axis}` for x, y or z. `block_dim` and `grid_dim` are None
    where no register holds the value: the block size is then a constant of the kernel, and the grid is passed to it.
    `barrier` is the list of operations that make the threads of a block wait for each other and see each other's
    stores. `attributes` are those of a kernel, with `{x}`, `{y}`, `{z}` for the size of its block and `{threads}` for
    their product; further ones are `wishes`, by what a launch requests, with `{n}` for a number, `{half}` for half of
    it, and `{warps}` for the warps of so many blocks, shared out over the `schedulers` of a multiprocessor.
    `named_barrier` has `{id}`, an i32, and `{threads}`, how many wait there, if not all; it is empty where blocks have
    one barrier. `sync_warp` makes the lanes of a warp wait for each other and see each other's stores, with `{mask}`
    for all of them; `sync_cluster` the blocks of a cluster. `peer` is the address that block `{rank}` of the cluster
    has a `{pointer}` to shared memory at. `registers` gives each thread of four warps `{count}` registers, by whether
    these are more than it had.
    """

    thread_id: str
    block_id: str
    block_dim: str | None
    grid_dim: str | None
    barrier: tuple[str, ...]
    attributes: str
    warp: WarpOperations
    copies: CopyOperations | None = None
    bulk: BulkOperations | None = None
    wishes: Mapping[str, str] = field(default_factory=dict, hash=False)
    schedulers: int = 4
    named_barrier: str = ""
    sync_warp: tuple[str, ...] = ()
    sync_cluster: tuple[str, ...] = ()
    peer: str = ""
    registers: Mapping[bool, str] = field(default_factory=dict, hash=False)

    def spell(self, what: Literal["thread_id", "block_id", "block_dim", "grid_dim"], axis: str) -> str | None:
        """The operation for one axis: `spell("thread_id", "x")` is `nvvm.read.ptx.sreg.tid.x : i32` for CUDA."""
        template: str | None = getattr(self, what)
        return None if template is None else template.format(axis=axis)


@dataclass(frozen=True)
class DotOperations:
    """MLIR spellings of sums of four products of 8-bit integers.

    Attributes:
        lanes: how many sums there can be in one operation.
        forms: by the signs of the factors, `ss`, `uu` and `us`: the operation on `{acc}`, `{a}` and `{b}`, vectors of
            `{bits}` bits and of the types `{sums}` and `{bytes}`; of these three at least `ss` or `us`, or none.
        of_words: whether the operands of `forms` are words, with `{true}` and `{false}` for flags.
        pairs: by the number of lanes: the intrinsic that multiplies numbers of 16 bits and adds neighbouring products,
            for signs that `forms` does not have.
        byte_pairs: by the number of lanes: the intrinsic that multiplies unsigned bytes by signed ones and adds
            neighbouring products, saturated to 16 bits: exact where the unsigned ones are 128 at most.
    """

    lanes: tuple[int, ...]
    forms: Mapping[str, str] = field(default_factory=dict, hash=False)
    of_words: bool = False
    pairs: Mapping[int, str] = field(default_factory=dict, hash=False)
    byte_pairs: Mapping[int, str] = field(default_factory=dict, hash=False)


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


@dataclass(frozen=True)
class ThreadSystem:
    """What a thread pool requests from an operating system on a processor: numbers of system calls, and in LLVM IR a
    pause and how floats are computed.

    `float_modes` are functions: `i64 @float_mode()`, `@set_float_mode(i64)`, and `i64 @plain_floats(i64)`, which gives
    a mode in which denormal numbers stay what they are, results are rounded to the nearest, and no exception traps;
    `i1 @floats_are_plain(i64)` says whether a mode is such a one.
    """

    futex: int
    sched_yield: int
    setaffinity: int
    getaffinity: int
    getcpu: int
    gettid: int
    getpid: int
    sigprocmask: int
    nanosleep: int
    mmap: int
    munmap: int
    pause: str
    declaration: str
    float_modes: str


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

    Attributes:
        kind: what runs the code, in a word for people; nothing decides by it.
        triple, data_layout, cpu, features: LLVM's. Where `cpu` is empty, it is the processor at hand, whose name and
            features LLVM finds itself (`codegen.llvm.processor`); `features` are then added to those.
        format: what its code is.
        capabilities: those of `FEATURES` that it has; see `supports`.
        intrinsics: the LLVM intrinsics that its code generator survives.
        bf16_dots: by the number of sums, the intrinsic that adds two products of bf16 each; see `dot2` of the language.
        byte_tables: by the number of bytes, the intrinsic that looks up each 16 of them in a table of 16 of their own.
        dots: its sums of four products of 8-bit integers; None where shifts and products compute them.
        lanes: how many threads run in lockstep. Where it is one, LLVM makes vectors of loops.
        vector_bits: the widest vector register of one thread.
        spaces, scopes: LLVM's address spaces, and LLVM's words for block, cluster, device and system: whose threads
            see an atomic operation as one step.
        atomic_scopes: the words of PTX for those scopes that LLVM forgets where it emits an atomic update.
        keeps_atomic_order: whether LLVM keeps the ordering of atomic operations; else fences stand around them.
        saturating_casts: whether floats become integers, saturated, by one instruction.
        returns_behind_traps: whether a return has to stand behind a trap; see `codegen.llvm_workarounds`.
        half_loads_wait: whether LLVM loads an f16 into a register that it has not cleared; see the same module.
        prefetch: inline assembly of a prefetch for localities 0 to 3, where LLVM drops its own.
        limits: the limits of one launch.
        grid: how kernels run as a grid of threads; None where the op is one function.
        simulates: whether the processor at hand runs these threads, by code like the host's.
        libcalls: symbols that its objects may leave undefined, each with the shared library that has it.
        needs: features that a machine of this architecture must have to run its code, in the words of /proc/cpuinfo.
        system: what the thread pool needs; None where there is none.
        dialect, mlir_passes: MLIR's dialect of the family, and the passes that lower it.
        debug_info: which debug information LLVM makes.
        checks_memory: whether kernels report what they do with memory, so that it is checked; such code is a
            simulation.
        identity: distinguishes machines that share a name; empty where the name means the same on every machine.
        level: how much LLVM optimises, from 0 to 3; see `codegen.llvm.compile_module`.
    """

    name: str
    kind: str
    triple: str
    data_layout: str
    cpu: str
    features: str
    format: CodeFormat
    capabilities: frozenset[str]
    intrinsics: Intrinsics = field(hash=False, repr=False)
    bf16_dots: Mapping[int, str] = field(default_factory=dict, hash=False, repr=False)
    byte_tables: Mapping[int, str] = field(default_factory=dict, hash=False, repr=False)
    dots: DotOperations | None = field(default=None, hash=False, repr=False)
    lanes: int = 1
    vector_bits: int = 128
    spaces: AddressSpaces = AddressSpaces()
    scopes: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    atomic_scopes: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    keeps_atomic_order: bool = True
    saturating_casts: bool = False
    returns_behind_traps: bool = False
    half_loads_wait: bool = False
    prefetch: tuple[str, ...] = ()
    limits: Limits = Limits()
    grid: GridOperations | None = None
    simulates: bool = False
    libcalls: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    needs: frozenset[str] = frozenset()
    system: ThreadSystem | None = None
    dialect: str = ""
    mlir_passes: tuple[str, ...] = ()
    debug_info: DebugInfo = "LineTablesOnly"
    checks_memory: bool = False
    identity: str = ""
    level: int = FULL

    @property
    def has_grid(self) -> bool:
        """Whether work runs as grids of threads, in memory of a device: what the language calls a GPU."""
        return self.grid is not None

    @property
    def has_mbarriers(self) -> bool:
        """Whether barriers in shared memory, at which copies arrive, are instructions."""
        return self.grid is not None and self.grid.bulk is not None and not self.simulates

    @property
    def has_context(self) -> bool:
        """Whether code is handed the caller's context, by which it reports, polls and spreads work."""
        return self.grid is None or self.simulates

    @property
    def vectorizes(self) -> bool:
        """Whether LLVM makes vectors of loops; elsewhere the threads are the lanes."""
        return self.lanes == 1

    @property
    def warp_size(self) -> int:
        """How many threads of a block are a warp to the language; where no hardware runs grids, 32."""
        return self.lanes if self.has_grid else 32

    @property
    def architecture(self) -> str:
        """The first part of the triple, such as `x86_64`."""
        return self.triple.partition("-")[0]

    @property
    def key(self) -> str:
        """A short text that differs whenever the code for the target would; part of every cache key."""
        said = (self.name, self.triple, self.data_layout, self.cpu, self.features, self.identity)
        record = "\n".join((*said, *([] if self.level == FULL else [str(self.level)])))
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

    def most_blocks(self, block: Sequence[int]) -> tuple[int, int, int]:
        """How many blocks of this size a grid may have along x, y and z."""
        limits = self.limits
        x, y, z = (min(n, limits.axis_threads // size) for n, size in zip(limits.grid, block, strict=True))
        return x, y, z

    def kernel_attributes(self, block: Sequence[int], wishes: Mapping[str, Any] | None = None) -> str:
        """MLIR attributes of an `llvm.func` that is launched as a grid of blocks of `block` = (x, y, z) threads.

        The text goes between the braces of `attributes {...}`; it is empty where there are no grids. `wishes` are what
        the launch requests by name: cluster, max_registers, min_blocks; a target without such an attribute drops it.

        Raises:
            TargetError: the block is larger than the target allows.
        """
        if self.grid is None:
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
        texts = [self.grid.attributes.format(x=x, y=y, z=z, threads=x * y * z)]
        for name, value in (wishes or {}).items():
            if name in self.grid.wishes:
                sizes = value if isinstance(value, Sequence) else (value,)
                warps = -(-(sizes[0] * -(-x * y * z // self.warp_size)) // self.grid.schedulers)
                n, half = ", ".join(map(str, sizes)), max(sizes[0] // 2, 1)
                texts.append(self.grid.wishes[name].format(n=n, half=half, warps=warps))
        return ", ".join(texts)
