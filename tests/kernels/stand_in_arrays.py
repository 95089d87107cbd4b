"""Arrays of the stand-in GPU: NumPy under CuPy's names, and as strict as CuPy."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.compat import array_module

UNWRITTEN = 0xFF
"""What each byte of an array holds that nobody has written: not a number, and -1."""
MOST_FILLED = 16 << 20
"""Bytes: of a larger array no page is touched, so that none of it takes memory."""
STREAM = 7
"""The handle of the only stream."""


class Array(np.ndarray):
    """An array that lies on the device, as far as the tree uses CuPy's."""

    @property
    def data(self) -> Memory:  # type: ignore[override]
        return Memory(self)

    def get(self) -> np.ndarray:
        return np.array(self, subok=False)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        outputs = options.get("out", ())
        if any(type(value) is np.ndarray and value.ndim for value in (*inputs, *outputs)):
            raise TypeError(
                f"{function.__name__}: CuPy takes no array of the host's beside its own"
            )
        if outputs:
            options["out"] = tuple(map(_on_host, outputs))
        found = getattr(function, method)(*map(_on_host, inputs), **options)
        return outputs[0] if len(outputs) == 1 else _on_device(found)


class Memory:
    """Where an array lies: its address, and memory operations that are queued."""

    def __init__(self, array: Array) -> None:
        self.array, self.ptr = array, array.ctypes.data

    def memset_async(self, value: int, size: int, stream: Any) -> None:
        assert size == self.array.nbytes, f"{size} bytes of {self.array.nbytes} are set"
        assert stream.ptr == STREAM
        self.array.view(np.uint8)[...] = value

    def copy_from_device_async(self, source: Memory, size: int, stream: Any) -> None:
        assert size == self.array.nbytes == source.array.nbytes
        assert stream.ptr == STREAM
        self.array[...] = source.array


def _on_host(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Array) else value


def _on_device(value: Any) -> Any:
    return value.view(Array) if isinstance(value, np.ndarray) else value


def _returning_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        return _on_device(function(*map(_on_host, arguments), **options))

    return call


class ArrayModule:
    """NumPy under the names that CuPy has, too; it gives arrays of the device."""

    def __getattr__(self, name: str) -> Any:
        getattr(array_module(), name)
        found = getattr(np, name)
        return found if isinstance(found, type) or not callable(found) else _returning_arrays(found)

    @staticmethod
    def empty(shape: Any, dtype: Any = float) -> Array:
        array = np.empty(shape, dtype)
        if array.nbytes <= MOST_FILLED:
            array.view(np.uint8)[...] = UNWRITTEN
        return array.view(Array)

    def empty_like(self, array: Array) -> Array:
        return self.empty(array.shape, array.dtype)

    @property
    def random(self) -> Any:
        def default_rng(seed: Any) -> Any:
            generator = np.random.default_rng(seed)
            return SimpleNamespace(
                random=_returning_arrays(generator.random),
                integers=_returning_arrays(generator.integers),
            )

        return SimpleNamespace(default_rng=default_rng)
