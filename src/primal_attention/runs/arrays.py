"""Arrays in .npy and .npz files, read only where the file can hold what its headers promise."""

from __future__ import annotations

import math
import os
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]
DEFLATED = 1_032  # that a byte of a packed file can stand for at most
# what zipfile, zlib and numpy raise at damaged files beside ValueError
DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, NotImplementedError,
    RuntimeError, ArithmeticError, TypeError, SyntaxError, tokenize.TokenError, MemoryError,
)  # fmt: skip


def read_array(path: Path) -> npt.NDArray[Any]:
    """The array of a .npy file; a ValueError says what is wrong with it."""
    with open(path, "rb") as file:
        try:
            return _array(file, os.fstat(file.fileno()).st_size, "the array")
        except DAMAGED as error:
            raise ValueError(_first_line(error)) from error


def read_arrays(path: Path) -> Arrays:
    """The arrays of a .npz file by name; a ValueError says what is wrong with it."""
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return {
                    member.filename.removesuffix(".npy"): _member(archive, member)
                    for member in archive.infolist()
                }
        except DAMAGED as error:
            raise ValueError(_first_line(error)) from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    if member.file_size > DEFLATED * max(member.compress_size, 1):
        raise ValueError(
            f"{member.filename} promises {member.file_size:,} bytes in {member.compress_size:,} "
            "packed ones"
        )
    with archive.open(member) as file:
        return _array(file, member.file_size, member.filename)


def _array(file: IO[bytes], size: int, name: str) -> npt.NDArray[Any]:
    """An array whose header has been compared with the size of the file."""
    shape, kind, begin = _header(file)
    promised = math.prod(shape) * kind.itemsize
    if min(shape, default=0) < 0 or promised > size - begin:
        raise ValueError(f"{name} promises {shape} of {kind}, {size - begin:,} bytes are there")
    if kind.hasobject:
        raise ValueError(f"{name} holds Python objects; expected numbers or text")
    file.seek(0)
    found: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return found


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, type, and where the numbers begin."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0
    if version > (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    return shape, kind, file.tell()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
