"""Files that are damaged by chance: bytes turned, lost, doubled and put in; numbers that promise
far too much; JSON of another shape; arrays whose headers lie."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

HUGE = (2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, 10**12)
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 3, 1e308, 2**40, 10**30, "", "x", "\u0000", [], [[]], {}, {"a": 1}, [1, "b"],
)  # fmt: skip
TOKENS = (b"NaN", b"inf", b"-1e999", b"", b",", b":", b'"', b"\n", b"\r", b"\t", b"\x00", b"\xff",
          b"\xef\xbb\xbf", b"@data", b"@classLabel true", b"#", b"?", b"1e400", b"--5")  # fmt: skip

Mutation = Callable[[Random, bytes], bytes]


def mutate(rng: Random, data: bytes, name: str) -> bytes:
    """One to three things happen to the content of a file of this name."""
    kinds: list[Mutation] = [turned, lost, cut, doubled, put_in, zeroed, promised, words]
    if name.endswith(".json"):
        kinds += [reshaped] * 6
    if name.endswith((".npz", ".npy")):
        kinds += [boasting] * 4
    if name.endswith(".safetensors"):
        kinds += [header] * 4
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(kinds)(rng, data)
    return data


def _span(rng: Random, data: bytes, most: int = 200) -> tuple[int, int]:
    begin = rng.randint(0, len(data))
    return begin, min(len(data), begin + rng.randint(1, most))


def turned(rng: Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 4, 30)) if data else 0):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def lost(rng: Random, data: bytes) -> bytes:
    begin, end = _span(rng, data)
    return data[:begin] + data[end:]


def cut(rng: Random, data: bytes) -> bytes:
    return data[: rng.randint(0, len(data))]


def doubled(rng: Random, data: bytes) -> bytes:
    begin, end = _span(rng, data)
    return data[:end] + data[begin:end] * rng.choice((1, 1, 50)) + data[end:]


def put_in(rng: Random, data: bytes) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.randbytes(rng.randint(1, 40)) + data[at:]


def zeroed(rng: Random, data: bytes) -> bytes:
    begin, end = _span(rng, data, 64)
    return data[:begin] + rng.choice((b"\x00", b"\xff")) * (end - begin) + data[end:]


def promised(rng: Random, data: bytes) -> bytes:
    """A number, as text or as bytes, becomes a huge one."""
    huge = rng.choice(HUGE)
    numbers = list(re.finditer(rb"\d+", data[:200_000]))
    if numbers and rng.random() < 0.6:
        found = rng.choice(numbers)
        return data[: found.start()] + str(huge).encode() + data[found.end() :]
    at = 4 * rng.randint(0, max(0, len(data) // 4 - 1))
    return data[:at] + struct.pack("<q", min(huge, 2**63 - 1)) + data[at + 8 :]


def words(rng: Random, data: bytes) -> bytes:
    """A cell of a text becomes a word that means something, or nothing, to a reader."""
    cells = list(re.finditer(rb"[^,:\t\n]+", data[:200_000])) or [re.match(rb"", data)]
    found = rng.choice(cells)
    assert found is not None
    return data[: found.start()] + rng.choice(TOKENS) + data[found.end() :]


def reshaped(rng: Random, data: bytes) -> bytes:
    """A value somewhere in a JSON document becomes another, is lost, or is deep."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if rng.random() < 0.03:
        return b"[" * 100_000
    if rng.random() < 0.05:
        return json.dumps(rng.choice(ODD)).encode()
    places = list(_places(document))
    if not places:
        return data
    holder, key = rng.choice(places)
    what = rng.random()
    if what < 0.25:
        del holder[key]
    elif what < 0.35 and isinstance(holder, dict):
        holder[rng.choice(("x", str(key) + "s", ""))] = holder.pop(key)
    elif what < 0.5 and isinstance(holder[key], int | float):
        holder[key] = rng.choice((*HUGE, -1, 0, 0.5, 1e308))
    else:
        holder[key] = rng.choice(ODD)
    return json.dumps(document).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in a document, as what holds it and its key there."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def boasting(rng: Random, data: bytes) -> bytes:
    """The header of an array, alone or in an archive, has another shape or type."""

    def lie(array: bytes) -> bytes:
        wrong = rng.choice((
            (rb"'shape': \([^)]*\)", f"'shape': ({rng.choice(HUGE)}, 3)".encode()),
            (rb"'shape': \([^)]*\)", f"'shape': ({rng.randint(0, 9)}, {2**32}, {2**33})".encode()),
            (rb"'shape': \([^)]*\)", b"'shape': (-1, 2)"),
            (rb"'descr': '[^']*'", rng.choice((b"'descr': '|O'", b"'descr': '<U999999999'",
                                               b"'descr': '<M8[s]'", b"'descr': '<c16'"))),
        ))  # fmt: skip
        return re.sub(*wrong, array[:128]) + array[128:]

    if not data.startswith(b"PK"):
        return lie(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return data
    if not members:
        return data
    chosen = rng.choice(sorted(members))
    members[chosen] = lie(members[chosen])
    if rng.random() < 0.1:
        members[chosen] += bytes(30 * 2**20)  # packs to nothing
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def header(rng: Random, data: bytes) -> bytes:
    """The header of a safetensors file says something else, perhaps of another length."""
    size = int.from_bytes(data[:8], "little")
    changed = reshaped(rng, data[8 : 8 + size])
    length = len(changed) if rng.random() < 0.8 else rng.choice(HUGE)
    return length.to_bytes(8, "little") + changed + data[8 + size :]
