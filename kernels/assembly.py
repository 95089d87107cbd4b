"""The one place where inline assembly meets numba: everything else writes PTX templates.

`assembly` builds one callable from a template. On a GPU it is a numba intrinsic, in the
simulator its plain Python twin. Everything here is marked as having side effects unless it reads
a constant: without that mark LLVM folds two clock reads into one, hoists them out of loops and
drops loads. Marked statements keep their order among each other, so a chain of instructions
between two clock reads stays between them in the PTX; the assembler that follows knows of no such
mark, therefore a timed result must also depend on its input (tests read both).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.cuda import types

from kernels import compat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Kind:
    """An element type as PTX, numba, NumPy and LLVM's operand constraints spell it."""

    name: str
    type: Any
    constraint: str
    dtype: Any

    @property
    def bytes(self) -> int:
        return np.dtype(self.dtype).itemsize


KINDS = {
    kind.name: kind
    for kind in (
        Kind("f32", types.float32, "f", np.float32),
        Kind("f64", types.float64, "d", np.float64),
        Kind("s32", types.int32, "r", np.int32),
        Kind("u32", types.uint32, "r", np.uint32),
        Kind("s64", types.int64, "l", np.int64),
        Kind("u64", types.uint64, "l", np.uint64),
    )
}


# --- Parameters: how an argument of the Python call becomes operands of the assembly. ---


@dataclass(frozen=True)
class Value:
    """A scalar."""

    kind: Kind
    arity = 1

    def signature(self, given: Sequence[Any]) -> tuple:
        return (self.kind.type,)

    def operands(self, context: Any, builder: Any, given: Any, values: Any) -> tuple:
        return (values[0],)

    @property
    def constraints(self) -> tuple[str, ...]:
        return (self.kind.constraint,)


@dataclass(frozen=True)
class Values:
    """A tuple of `width` scalars."""

    kind: Kind
    width: int
    arity = 1

    def signature(self, given: Sequence[Any]) -> tuple:
        return (types.UniTuple(self.kind.type, self.width),)

    def operands(self, context: Any, builder: Any, given: Any, values: Any) -> tuple:
        return tuple(builder.extract_value(values[0], place) for place in range(self.width))

    @property
    def constraints(self) -> tuple[str, ...]:
        return (self.kind.constraint,) * self.width


@dataclass(frozen=True)
class Element:
    """A contiguous array and the index of an element: its address."""

    kind: Kind
    arity = 2
    constraints = ("l",)

    def signature(self, given: Sequence[Any]) -> tuple:
        _require_array(given[0], self.kind)
        return (given[0], types.int64)

    def operands(self, context: Any, builder: Any, given: Any, values: Any) -> tuple:
        data = context.make_array(given[0])(context, builder, values[0]).data
        return (
            builder.ptrtoint(builder.gep(data, [values[1]]), context.get_value_type(types.uint64)),
        )


@dataclass(frozen=True)
class Base:
    """A contiguous array: the generic address of its first element."""

    arity = 1
    constraints = ("l",)

    def signature(self, given: Sequence[Any]) -> tuple:
        _require_array(given[0], None)
        return (given[0],)

    def operands(self, context: Any, builder: Any, given: Any, values: Any) -> tuple:
        data = context.make_array(given[0])(context, builder, values[0]).data
        return (builder.ptrtoint(data, context.get_value_type(types.uint64)),)


def _require_array(given: Any, kind: Kind | None) -> None:
    from numba.cuda.core.errors import TypingError

    fits = isinstance(given, types.Array) and given.ndim == 1 and given.layout == "C"
    if not fits or (kind is not None and given.dtype != kind.type):
        wanted = "" if kind is None else f" of {kind.type}"
        raise TypingError(f"a contiguous 1-D array{wanted} is needed, not {given}")


# An intrinsic needs a definition with exactly the parameters of the call.
_DEFINITIONS: tuple[Callable[[Callable], Callable], ...] = (
    lambda body: lambda context: body(),
    lambda body: lambda context, a: body(a),
    lambda body: lambda context, a, b: body(a, b),
    lambda body: lambda context, a, b, c: body(a, b, c),
    lambda body: lambda context, a, b, c, d: body(a, b, c, d),
    lambda body: lambda context, a, b, c, d, e: body(a, b, c, d, e),
)


def assembly(
    name: str,
    template: str,
    returns: Kind | tuple[Kind, int] | None,
    parameters: Sequence[Any],
    twin: Callable,
    *,
    summary: str,
    side_effect: bool = True,
    memory: bool = False,
) -> Callable:
    """A callable for kernels that runs the PTX `template`.

    Args:
        name: Its name in messages.
        template: PTX with ``$0``, ``$1``... for the results first, then the operands.
        returns: The kind of the result, (kind, n) for a tuple of n, or None.
        parameters: `Value`, `Values`, `Element` or `Base`, in the order of the call.
        twin: What the simulator calls instead.
        summary: The docstring.
        side_effect: Whether a read may give another value each time, or something is written.
        memory: Whether memory is read or written, so that LLVM moves no other access across.
    """
    if compat.SIMULATOR:
        return _named(lambda *given: twin(*given), name, summary)
    from llvmlite import ir
    from numba.cuda.extending import intrinsic
    from numba.cuda.typing import signature

    kind, count = returns if isinstance(returns, tuple) else (returns, 1 if returns else 0)
    constraints = [f"={kind.constraint}"] * count if kind else []
    constraints += itertools.chain.from_iterable(one.constraints for one in parameters)
    constraints += ["~{memory}"] if memory else []

    def typed(*given: Any) -> Any:
        arguments: list[Any] = []
        for parameter in parameters:
            at = len(arguments)
            arguments += parameter.signature(given[at : at + parameter.arity])
        result = types.void
        if kind:
            result = types.UniTuple(kind.type, count) if count > 1 else kind.type
        return signature(result, *arguments), generate

    def generate(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        operands: list[Any] = []
        at = 0
        for parameter in parameters:
            end = at + parameter.arity
            operands += parameter.operands(context, builder, sig.args[at:end], values[at:end])
            at = end
        element = context.get_value_type(kind.type) if kind else None
        returned = (
            ir.VoidType()
            if element is None
            else element
            if count == 1
            else ir.LiteralStructType([element] * count)
        )
        function_type = ir.FunctionType(returned, [operand.type for operand in operands])
        statement = ir.InlineAsm(function_type, template, ",".join(constraints), side_effect)
        called = builder.call(statement, operands)
        if count == 0:
            return context.get_dummy_value()
        if count == 1:
            return called
        items = [builder.extract_value(called, place) for place in range(count)]
        return context.make_tuple(builder, sig.return_type, items)

    arity = sum(parameter.arity for parameter in parameters)
    return intrinsic(_named(_DEFINITIONS[arity](typed), name, summary))


def _named(function: Callable, name: str, summary: str) -> Callable:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = summary
    return function
