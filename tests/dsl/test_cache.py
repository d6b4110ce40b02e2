"""The store: what is put is found, what was damaged is not, and nothing about the folder can stop the work."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from einkorn.dsl.diagnostics.errors import PackageError
from einkorn.dsl.environment import cache as module
from einkorn.dsl.environment import fingerprint as fingerprints
from einkorn.dsl.environment.cache import Cache, CacheWarning, content_key, default_root

KEY = content_key("a kernel")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EINKORN_CACHE", raising=False)
    monkeypatch.delenv("EINKORN_CACHE_DIR", raising=False)
    monkeypatch.setattr(module, "_warned", set())


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_what_was_put_is_found_by_another_cache(cache: Cache) -> None:
    assert cache.get(KEY) is None and cache.path(KEY) is None
    path = cache.put(KEY, b"code")
    again = Cache(cache.root)
    assert again.get(KEY) == b"code"
    assert again.path(KEY) == path and path.read_bytes().startswith(b"code") and path.suffix == ".so"
    assert again.get(KEY, ".json") is None
    cache.put(KEY, b"", ".json")
    assert again.get(KEY, ".json") == b""
    assert again.get(KEY) == b"code"


def test_put_replaces(cache: Cache) -> None:
    cache.put(KEY, b"one")
    cache.put(KEY, b"other")
    assert cache.get(KEY) == b"other" and cache.info().entries == 1


@pytest.mark.parametrize("key", ["", "a", "../../x", "a/b", "a.b", "x" * 201])
def test_keys_cannot_leave_the_folder(cache: Cache, key: str) -> None:
    with pytest.raises(ValueError, match="cannot name a cache entry"):
        cache.put(key, b"")
    with pytest.raises(ValueError, match="cannot name a cache entry"):
        cache.get(KEY, "/../x")


IN_PLACE = {
    "folder": lambda path: path.mkdir(),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "pipe": lambda path: os.mkfifo(path),
    "unreadable": lambda path: (path.write_bytes(b"x"), path.chmod(0)),
    "older": lambda path: path.write_bytes(b"code" + module._TRAILER.pack(bytes(32), 4, b"EKCACHE1")),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links, pipes and modes are of Unix")
@pytest.mark.parametrize("what", IN_PLACE)
def test_whatever_lies_in_the_place_of_an_entry_is_replaced(cache: Cache, what: str) -> None:
    path = cache.put(KEY, b"code")
    path.unlink()
    IN_PLACE[what](path)
    assert cache.get(KEY) is None and cache.path(KEY) is None
    assert cache.info().entries <= 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.put(KEY, b"code") == path
    assert cache.get(KEY) == b"code" and path.is_file() and not path.is_symlink()


@pytest.mark.parametrize("where", ["entry", "shard", "version"])
def test_what_holds_something_else_is_left_alone(cache: Cache, where: str) -> None:
    """The entry is kept for this process; other entries are kept as ever."""
    path = cache.put(KEY, b"code")
    path.unlink()
    if where == "entry":
        path.mkdir()
        (path / "notes.txt").write_text("mine")
    else:
        stranger = path.parent if where == "shard" else path.parents[1]
        shutil.rmtree(stranger)
        stranger.write_text("mine")
    with pytest.warns(CacheWarning, match="something else is in its place") as caught:
        assert cache.put(KEY, b"code").read_bytes().startswith(b"code")
        assert cache.put(KEY, b"code").read_bytes().startswith(b"code")
    assert len(caught) == 1
    assert cache.get(KEY) == b"code" and cache.root not in cache.path(KEY).parents  # type: ignore[union-attr]
    if where != "version":
        other = content_key("another")
        assert cache.root in cache.put(other, b"other").parents and cache.get(other) == b"other"
    assert b"mine" in [f.read_bytes() for f in cache.root.rglob("*") if f.is_file()]


def test_a_seal_is_of_one_key_and_one_kind(cache: Cache) -> None:
    """Copies of whole, unchanged entries under every other name are misses, in every direction."""
    keys, suffixes = [content_key(n) for n in range(3)], (".so", ".json", ".ptx")
    names = [(key, suffix) for key in keys for suffix in suffixes]
    paths = {name: cache.put(name[0], b"the same data", name[1]) for name in names}
    sealed = {name: path.read_bytes() for name, path in paths.items()}
    for donor in names:
        for name in names:
            paths[name].write_bytes(sealed[donor])
            assert cache.get(*name) == (b"the same data" if name == donor else None)
            paths[name].write_bytes(sealed[name])


def test_an_entry_that_is_cut_anywhere_is_a_miss(cache: Cache) -> None:
    path = cache.put(KEY, b"0123456789" * 7)
    raw = path.read_bytes()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        assert cache.get(KEY) is None
        path.write_bytes(raw[length + 1 :])
        assert cache.get(KEY) is None
    path.write_bytes(raw)
    assert cache.get(KEY) is not None


def test_where_nothing_can_be_written(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **keywords: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    monkeypatch.setattr(module, "_own", None)
    with pytest.warns(CacheWarning, match="No space left"), pytest.raises(PackageError) as caught:
        cache.put(KEY, b"code")
    assert caught.value.code == "EK0517" and "EINKORN_CACHE_DIR" in str(caught.value)


@pytest.mark.parametrize("root", ["a\0b", "x" * 5000, "loop/cache"])
def test_roots_that_are_no_folders(tmp_path: Path, root: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.warns(CacheWarning, match="cannot be made"):
        expect_private(Cache(tmp_path / root))


@pytest.mark.parametrize("damage", ["cut", "empty", "bit", "trailer", "longer", "swapped"])
def test_damaged_entries_are_misses_and_are_replaced(cache: Cache, damage: str) -> None:
    data = bytes(range(256)) * 40
    path = cache.put(KEY, data)
    raw = bytearray(path.read_bytes())
    if damage == "cut":
        raw = raw[: len(raw) // 2]
    elif damage == "empty":
        raw = bytearray()
    elif damage == "bit":
        raw[5000] ^= 1
    elif damage == "trailer":
        raw[-20] ^= 1
    elif damage == "longer":
        raw += b"x"
    else:  # an intact entry, but of another key
        raw = bytearray(cache.put(content_key("another"), data).read_bytes())
    path.write_bytes(raw)
    assert cache.get(KEY) is None and cache.path(KEY) is None
    cache.put(KEY, data)
    assert cache.get(KEY) == data


def test_a_shared_library_is_mapped_from_the_cache_file(cache: Cache) -> None:
    """The trailer does not disturb the loader: an extension module of this Python serves as a library at hand."""
    import _struct

    library = getattr(_struct, "__file__", None)
    if library is None:
        pytest.skip("_struct is built into this interpreter")
    path = cache.put(KEY, Path(library).read_bytes())
    assert ctypes.PyDLL(str(path)).PyInit__struct


def hammer(root: Path, seed: int, rounds: int) -> int:
    """Puts, gets and now and then clears; gives how often an entry held anything but its own data."""
    cache, wrong = Cache(root), 0
    keys = [content_key("shared", i) for i in range(8)]
    for step in range(rounds):
        key = keys[(seed * 7 + step) % len(keys)]
        actual = cache.get(key)
        wrong += actual is not None and actual != key.encode() * 500
        cache.put(key, key.encode() * 500)
        if step % 50 == seed:
            cache.clear()
    return wrong


def test_many_processes_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert sum(pool.starmap(hammer, [(tmp_path / "cache", seed, 200) for seed in range(4)])) == 0
    assert not [f for f in (tmp_path / "cache").rglob("*") if f.name.startswith("tmp-")]


def test_a_writer_that_was_killed_leaves_no_entry(cache: Cache) -> None:
    shard = cache.put(KEY, b"code").parent
    (shard / "tmp-dead").write_bytes(b"half of an ent")
    assert cache.info().entries == 1
    long_ago = time.time() - 10_000
    os.utime(shard / "tmp-dead", (long_ago, long_ago))
    cache.put("00" + KEY[2:], b"prunes")
    assert not (shard / "tmp-dead").exists() and cache.get(KEY) == b"code"


def test_the_least_recently_used_go_when_there_are_too_many(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", limit=100_000)
    keys = [content_key("entry", i) for i in range(12)]
    for age, key in enumerate(keys):
        path = cache.put(key, bytes(10_000))
        then = time.time() - 200_000 + age
        os.utime(path, (then, then))
    assert cache.get(keys[0]) is not None  # it is the oldest, but in use
    cache.put("00" + KEY[2:], b"prunes")
    assert cache.info().bytes <= 75_000
    assert cache.get(keys[0]) is not None and cache.get(keys[11]) is not None
    assert cache.get(keys[1]) is None


def expect_private(cache: Cache) -> None:
    """It works, but in a folder of this process."""
    path = cache.put(KEY, b"code")
    assert cache.root not in path.parents
    assert cache.get(KEY) == b"code" and cache.path(KEY) == path
    folder = path.parents[3]
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_warns_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(CacheWarning, match="it cannot be made") as caught:
        expect_private(Cache(tmp_path / "file" / "cache"))
        expect_private(Cache(tmp_path / "file" / "cache"))
    assert len(caught) == 1


def test_a_folder_that_cannot_be_written_warns_and_still_serves(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    other = content_key("kept")
    cache.put(other, b"kept")
    real = tempfile.mkstemp

    def read_only(prefix: str, dir: Path) -> tuple[int, str]:
        if cache.root in dir.parents:
            raise OSError(30, "Read-only file system")
        return real(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "mkstemp", read_only)
    with pytest.warns(CacheWarning, match=r"cannot be written \(Read-only file system\).*EINKORN_CACHE_DIR"):
        expect_private(cache)
    assert cache.get(other) == b"kept"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes and owners are of Unix")
@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_code_that_others_could_have_written_is_not_run(cache: Cache, mode: int) -> None:
    cache.put(KEY, b"evil")
    cache.root.chmod(mode)
    with pytest.warns(CacheWarning, match="other users may write to it"):
        suspicious = Cache(cache.root)
    assert suspicious.get(KEY) is None
    expect_private(suspicious)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes and owners are of Unix")
def test_a_folder_that_others_could_replace_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.warns(CacheWarning, match="other users may replace it"):
        expect_private(Cache(tmp_path / "open" / "cache"))
    module._warned.clear()
    (tmp_path / "open").chmod(0o1777)  # sticky, as /tmp is
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Cache(tmp_path / "open" / "cache")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes and owners are of Unix")
def test_another_users_files_are_not_trusted(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(KEY, b"code")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert cache.get(KEY) is None
    with pytest.warns(CacheWarning, match="it belongs to another user"):
        Cache(cache.root)


def test_switched_off(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(KEY, b"code")
    monkeypatch.setenv("EINKORN_CACHE", "0")
    off = Cache(cache.root)
    assert off.get(KEY) is None
    path = off.put(KEY, b"new")
    assert path.read_bytes().startswith(b"new") and cache.root not in path.parents
    assert off.get(KEY) is None
    assert Cache(cache.root).info().entries == 1


def test_the_private_folder_goes_with_the_process(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom einkorn.dsl.environment.cache import Cache\n"
        "path = Cache().put('abcd', b'code')\n"
        "pid = os.fork() if hasattr(os, 'fork') else -1\n"
        "if pid == 0: sys.exit(0)\n"  # a child that exits in order must leave its parent's folder alone
        "if pid > 0: os.waitpid(pid, 0)\n"
        "assert path.exists()\nprint(path)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "EINKORN_CACHE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() and not Path(run.stdout.strip()).parents[3].exists()


def test_info_and_clear_leave_strangers_alone(cache: Cache) -> None:
    for i in range(3):
        cache.put(content_key(i), bytes(100))
    (cache.root / "notes.txt").write_text("mine")
    stranger = cache.root / "v1" / "notes.so"
    stranger.write_text("mine")
    info = cache.info()
    assert (info.path, info.entries, info.bytes) == (cache.root, 3, 3 * 148)
    assert cache.clear() == 3 and cache.info().entries == 0
    assert (cache.root / "notes.txt").exists() and stranger.exists()


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_root().name == "einkorn"
    monkeypatch.setenv("EINKORN_CACHE_DIR", str(tmp_path / "named"))
    assert Cache().root == tmp_path / "named"
    assert (tmp_path / "named").stat().st_mode & 0o777 == 0o700


def test_content_keys_distinguish_parts() -> None:
    different: list[tuple[object, ...]] = [
        *[(part,) for part in ("ab", b"ab", ["ab"], "", 1, 1.0, True, None, 0.0, -0.0, {"a": 1}, {"a": 1.0})],
        *[("a", "b"), ("a", b"b"), ("", "ab"), ()],
    ]
    assert len({content_key(*parts) for parts in different}) == len(different)  # type: ignore[arg-type]
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1})
    assert content_key("x", 1).isalnum() and len(content_key("x", 1)) == 64


def test_what_runs_text_from_before_an_edit_keeps_nothing_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dsl" / "file.py"
    for folder in fingerprints.FOLDERS:
        (tmp_path / folder).mkdir()
    file.write_text("before")
    monkeypatch.setattr(fingerprints, "ROOT", tmp_path)

    def fingerprint_at(edited: int, pid: int) -> str:
        monkeypatch.setattr(os, "getpid", lambda: pid)
        os.utime(file, ns=(edited, edited))
        return fingerprints.fingerprint.__wrapped__()

    started, second = fingerprints._STARTED, 10**9
    for edited in (started - second, time.time_ns() + 1000 * second):  # before; and by another clock
        assert fingerprint_at(edited, 1) == fingerprint_at(edited, 2)
    assert fingerprint_at(started - second, 1) != fingerprint_at(started - 2 * second, 1)
    assert fingerprint_at(started + 1, 1) != fingerprint_at(started + 1, 2)
