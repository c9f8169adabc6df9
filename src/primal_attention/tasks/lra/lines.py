"""Files of lines, such as the benchmark's .tsv files."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ..base import DataError

Case = TypeVar("Case")
_BLOCK = 2**20


class Lines:
    """The lines of a file as bytes, with their ends; a byte order mark before them is left out.

    `header` is a first line that must be there and is no case. `len` counts the cases, quickly.
    """

    def __init__(self, path: Path, header: bytes | None = None) -> None:
        self.path, self.header = path, header
        self.first = 1 if header is None else 2  # the number of the first case's line

    def __len__(self) -> int:
        count, last = 0, b"\n"
        with open(self.path, "rb") as file:
            while block := file.read(_BLOCK):
                count, last = count + block.count(b"\n"), block
        return max(0, count + (not last.endswith(b"\n")) - (self.header is not None))

    def __iter__(self) -> Iterator[bytes]:
        with open(self.path, "rb") as file:
            if file.read(len(BOM_UTF8)) != BOM_UTF8:
                file.seek(0)
            if self.header is not None:
                found = file.readline().strip()
                if found != self.header:
                    names = self.header.decode().replace("\t", " and ")
                    raise DataError(
                        f"{self.path} has the columns {shown(found)}; expected {names}, separated "
                        "by a tab"
                    )
            yield from file

    def parse(
        self, lines: Sequence[bytes], first: int, read: Callable[[bytes], Case]
    ) -> list[Case]:
        """What `read` makes of lines, of which the first has the number of a case."""
        cases = []
        for number, line in enumerate(lines, first):
            try:
                cases.append(read(line))
            except ValueError as error:
                place = f"{self.path}, line {self.first + number}"
                cut = (
                    "" if line.endswith(b"\n") else " (the file ends in this line: is it complete?)"
                )
                raise DataError(f"{place}: {error}{cut}") from None
        return cases


def shown(text: bytes) -> str:
    """For messages: in quotes, cut if it is long."""
    words = text.decode("utf-8", "backslashreplace")
    return repr(words if len(words) <= 40 else words[:40] + "...")


def split_files(folder: Path, places: tuple[str, ...], names: dict[str, str]) -> dict[str, Path]:
    """By split, the files `names[split]` of the first place in a folder that has any of them."""
    for place in places:
        found = {split: folder / place / name for split, name in names.items()}
        here = {split: path for split, path in found.items() if path.is_file()}
        if here:
            return here
    return {}
