"""A cubin's sections, and the hash of the machine code in it by which a record knows a kernel."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator


def text_hash(cubin: bytes) -> str:
    """A digest of the machine code in `cubin`: 16 hexadecimal digits.

    Only the ``.text.*`` sections count. Everything else holds symbol names, in which numba
    counts the functions compiled so far, so that it changes with the order of compilation.

    Raises:
        ValueError: `cubin` is not a 64-bit little-endian ELF file, or holds no code.
    """
    digests = sorted(
        hashlib.sha256(content).digest()
        for name, _, content in sections(cubin)
        if name.startswith(".text.")
    )
    if not digests:
        raise ValueError("no .text section in this cubin")
    return hashlib.sha256(b"".join(digests)).hexdigest()[:16]


def sections(elf: bytes) -> Iterator[tuple[str, int, bytes]]:
    """(name, size, content) of each section; offsets as in the System V ABI, chapter 4."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)

    def header(index: int) -> tuple[int, int, int]:
        at = table + index * entry_size
        (name,) = struct.unpack_from("<I", elf, at)
        offset, size = struct.unpack_from("<QQ", elf, at + 0x18)
        return name, offset, size

    _, names, _ = header(names_index)
    for index in range(1, count):
        name, offset, size = header(index)
        start = names + name
        # A section that only reserves space has a size and nothing in the file; its content is
        # of no use here.
        yield elf[start : elf.index(b"\0", start)].decode(), size, elf[offset : offset + size]
