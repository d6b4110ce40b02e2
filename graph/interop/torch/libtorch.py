"""Finds what generated code calls and reads of PyTorch: functions of libtorch, and where a tensor keeps two words.

Most functions belong to the stable C interface. Two words of a tensor have no function there: the set of keys that the
dispatcher goes by, and the counter of its versions. Where they lie is found out at the first use, from tensors that
have them equal or different; where that gives no answer, ops of PyTorch go by Python.

See also `door` (what a door does with them).
"""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import torch

from ...driver.python_api import address_of, address_of_function, new_capsule, pointer_of_capsule

_log = logging.getLogger("einkorn.load")

_SHIM: Final = {
    "data": "aoti_torch_get_data_ptr",
    "sizes": "aoti_torch_get_sizes",
    "strides": "aoti_torch_get_strides",
    "rank": "aoti_torch_get_dim",
    "dtype": "aoti_torch_get_dtype",
    "contiguous": "aoti_torch_is_contiguous",
    "empty": "aoti_torch_empty_strided",
    "copy": "aoti_torch_copy_",
    "delete": "aoti_torch_delete_tensor_object",
    "new_list": "torch_new_list_reserve_size",
    "put_list": "torch_list_push_back",
    "list_size": "torch_list_size",
    "list_item": "torch_list_get_item",
    "delete_list": "torch_delete_list",
    "text_size": "torch_string_length",
    "text_data": "torch_string_c_str",
    "delete_text": "torch_delete_string",
    "grad_mode": "aoti_torch_grad_mode_is_enabled",
    "requires_grad": "_ZNK3c1010TensorImpl13requires_gradEv",  # c10::TensorImpl::requires_grad() const
    "tangent": "_ZNK3c1010TensorImpl8_fw_gradEmRKN2at10TensorBaseE",  # … _fw_grad(unsigned long, TensorBase const &)
    "undefined": "_ZN3c1019UndefinedTensorImpl10_singletonE",  # what a tensor points to that is none
    "included": "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE",
    "allocate_error": "__cxa_allocate_exception",
    "throw": "__cxa_throw",
}
_PYTHON: Final = {
    "holds_lock": "PyGILState_Check",
    "lock": "PyGILState_Ensure",
    "unlock": "PyGILState_Release",
    "incref": "Py_IncRef",
    "decref": "Py_DecRef",
}
# Keys of modes that stand between autograd and the kernels for a device.
_MODES: Final = ("Python", "Functionalize", "FuncTorchDynamicLayerBackMode")
# What describes a class of C++ with one base: that it is one, its name, its base. It is known by its name.
_CLASS: Final = ("_ZTVN10__cxxabiv120__si_class_type_infoE", "_ZTISt9exception")
_kept: list[Any] = []  # for ever: whatever doors throw is of it
_NAME: Final = ctypes.create_string_buffer(b"12python_error")
_REGISTER: Final = ("aoti_torch_library_init_impl", "aoti_torch_library_impl", "aoti_torch_delete_library_object")
TENSOR_WORDS: Final = 22  # that a tensor has at least
COUNTER: Final = 16  # in what counts the versions of a tensor: the number


class Libtorch:
    """The functions of libtorch that doors call.

    Raises:
        OSError, AttributeError: a function is missing, or tensors have another layout.
    """

    def __init__(self) -> None:
        folder = Path(torch.__file__).parent / "lib"
        files = [ctypes.CDLL(str(folder / name)) for name in ("libtorch_cpu.so", "libc10.so")]
        self.words = {word: _address(files, symbol) for word, symbol in _SHIM.items()}
        self.words |= {word: address_of(symbol) for word, symbol in _PYTHON.items()}
        self.words |= {f"mode{k}": int(getattr(torch._C.DispatchKey, name)) for k, name in enumerate(_MODES)}
        kind, base = (_address(files, symbol) for symbol in _CLASS)
        error_class = (ctypes.c_uint64 * 3)(kind + 16, ctypes.addressof(_NAME), base)
        self.words["error_kind"] = ctypes.addressof(error_class)
        _kept.append(error_class)
        self.start, self.add, self.end = (getattr(files[0], name) for name in _REGISTER)
        self.start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_void_p]
        self.add.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.end.argtypes = [ctypes.c_void_p]
        self._size, self._item, self._drop, self._new, self._put = (
            getattr(files[0], _SHIM[word]) for word in ("list_size", "list_item", "delete_list", "new_list", "put_list")
        )
        self._size.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._item.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self._drop.argtypes = [ctypes.c_void_p]
        self._text_size, self._text_data, self._drop_text = (
            getattr(files[0], _SHIM[word]) for word in ("text_size", "text_data", "delete_text")
        )
        self._text_size.argtypes = self._text_data.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._drop_text.argtypes = [ctypes.c_void_p]
        self._new.argtypes = [ctypes.c_size_t, ctypes.c_void_p]
        self._put.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        with ThreadPoolExecutor(1) as pool:  # a thread of its own has no modes: neither fake tensors nor inference
            pool.submit(self._probe).result()

    def take(self, word: int) -> torch.Tensor:
        """The tensor of a handle, which is gone then."""
        # The function for a single handle does not free it: the memory of each tensor would be lost.
        (result,) = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs([new_capsule(word, None, None)])
        assert isinstance(result, torch.Tensor)
        return result

    def give(self, tensor: torch.Tensor) -> int:
        """A handle of a tensor."""
        return int(pointer_of_capsule(torch._C._aoti.unsafe_alloc_void_ptr_from_tensor(tensor), None))

    def take_list(self, word: int) -> list[torch.Tensor]:
        """The tensors of a list, which is gone then."""
        return [self.take(item) for item in self.take_items(word)]

    def take_items(self, word: int) -> list[int]:
        """The items of a list, which is gone then, as words."""
        answer = ctypes.c_uint64()
        self._size(word, ctypes.byref(answer))
        results = []
        for k in range(answer.value):
            self._item(word, k, ctypes.byref(answer))
            results.append(answer.value)
        self._drop(word)
        return results

    def take_text(self, word: int) -> str:
        """The text of a handle, which is gone then."""
        size, data = ctypes.c_uint64(), ctypes.c_void_p()
        self._text_size(word, ctypes.byref(size))
        self._text_data(word, ctypes.byref(data))
        result = ctypes.string_at(data.value or 0, size.value)
        self._drop_text(word)
        return result.decode()

    def give_list(self, tensors: Sequence[torch.Tensor]) -> int:
        """A list of tensors."""
        result = ctypes.c_uint64()
        self._new(len(tensors), ctypes.byref(result))
        for tensor in tensors:
            self._put(result.value, self.give(tensor))
        return result.value

    def _probe(self) -> None:
        """Finds where a tensor keeps its keys and the counter of its versions."""
        one, other, meta = (torch.zeros(2, device=device) for device in ("cpu", "cpu", "meta"))
        alias, data = one.detach(), one.data  # the first shares the counter, the second has one of its own
        kinds = [(tensor, self._words(tensor)) for tensor in (one, other, alias, meta)]
        keys = [
            place
            for place in range(TENSOR_WORDS)
            if all(words[place] == torch._C._dispatch_keys(tensor).raw_repr() for tensor, words in kinds)
        ]
        mine, theirs, parted, apart = (self._words(t) for t in (one, alias, data, other))
        counters = [
            place
            for place in range(2, TENSOR_WORDS)
            if mine[place] == theirs[place] and mine[place] not in (0, parted[place], apart[place])
        ]
        if len(keys) != 1 or len(counters) != 1 or not self._counts(one, mine[counters[0]]):
            raise AttributeError("tensors are laid out in another way")
        self.words |= {"keys_offset": 8 * keys[0], "plain_keys": mine[keys[0]], "version": 8 * counters[0]}

    def _words(self, tensor: torch.Tensor) -> list[int]:
        """The words that a tensor begins with."""
        handle = self.give(tensor)
        at = ctypes.c_uint64.from_address(handle).value
        words = list((ctypes.c_uint64 * TENSOR_WORDS).from_address(at))
        self.take(handle)
        return words

    def _counts(self, tensor: torch.Tensor, counter: int) -> bool:
        number = ctypes.c_uint32.from_address(counter + COUNTER)
        for _ in range(3):
            if number.value != tensor._version:
                return False
            tensor.add_(1)
        return bool(number.value == tensor._version)


def _address(files: Sequence[ctypes.CDLL], symbol: str) -> int:
    for file in files:
        if hasattr(file, symbol):
            return address_of_function(getattr(file, symbol))
    raise AttributeError(symbol)


@functools.cache
def libtorch() -> Libtorch | None:
    """The functions that doors need; None if one of them is missing."""
    try:
        return Libtorch()
    except (OSError, AttributeError) as missing:
        _log.info("ops of PyTorch go by Python: %s", missing)
        return None
