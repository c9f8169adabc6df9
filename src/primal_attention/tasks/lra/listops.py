"""ListOps: nested lists of digits and operators, as text; the label is the value of the list.

Source                                          Target
( ( ( ( [MAX 2 ) 9 ) ( ( ( [MIN 4 ) 7 ) ] ) ) ] )    9

The benchmark leaves the parentheses out and reads the words: four operators, ten digits, and the
closing bracket. Token 0 is padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from .lines import Lines, shown, split_files
from .store import Encoded, Source

FILES = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}
OPERATORS = ("MIN", "MAX", "MED", "SM")
WORDS = (*(f"[{name}" for name in OPERATORS), "]", *"0123456789")  # token - 1
FIRST_OPERATOR, CLOSE, FIRST_DIGIT = 1, 5, 6
VOCABULARY = 1 + len(WORDS)
CLASSES = tuple("0123456789")
HEADER = b"Source\tTarget"

Expression = npt.NDArray[np.uint8]  # (length,) tokens

# one character for every word; numpy then needs no list of words
_SHORT = {b"[MIN": b"i", b"[MAX": b"a", b"[MED": b"e", b"[SM": b"s"}
_CODES = np.full(256, 255, dtype=np.uint8)
_CODES[np.frombuffer(b"iaes]0123456789", dtype=np.uint8)] = np.arange(1, VOCABULARY)
_TABLE = _CODES.tobytes()


def find(folder: Path) -> dict[str, Path]:
    """The files of the benchmark in a folder, by split."""
    return split_files(folder, ("listops-1000", "listops", "."), FILES)


def source(path: Path, split: str) -> Source:
    """The cases of one file."""
    file = Lines(path, HEADER)

    def encode(lines: Sequence[bytes], first: int) -> Encoded:
        cases, labels = zip(*file.parse(lines, first, parse_line), strict=True)
        lengths = np.array([[len(case)] for case in cases], dtype=np.int64)
        return Encoded(np.concatenate(cases), lengths, np.array(labels, dtype=np.int64))

    return Source(f"lra/listops {split}", [path], lambda: file, encode)


def parse_line(line: bytes) -> tuple[Expression, int]:
    """Tokens and label of a line of the file."""
    columns = line.rstrip(b"\r\n").split(b"\t")
    if len(columns) != 2:
        raise ValueError(f"found {len(columns)} columns; expected an expression and its value")
    text, target = columns
    if len(target) != 1 or not target.isdigit():
        raise ValueError(f"the value is {shown(target)}; expected a digit")
    return parse(text), int(target)


def parse(text: bytes) -> Expression:
    """The tokens of an expression; one that is not well formed is a ValueError."""
    short = text
    for word, letter in _SHORT.items():
        short = short.replace(word, letter)
    is_word = np.frombuffer(short, dtype=np.uint8) != ord(" ")
    tokens = np.frombuffer(short.translate(_TABLE, b" ()"), dtype=np.uint8)
    strange = text.translate(None, b"[MINAXEDS]0123456789 ()")
    joined = (is_word[1:] & is_word[:-1]).any()
    if strange or joined or not len(tokens) or tokens.max() > VOCABULARY:
        known = {word.encode() for word in WORDS} | {b"(", b")"}
        wrong = next((word for word in text.split() if word not in known), text)
        raise ValueError(
            f"found {shown(wrong)}; expected digits, operators ({', '.join(OPERATORS)}) "
            "and brackets, separated by spaces"
        )
    if text.count(b"(") != text.count(b")"):
        raise ValueError(
            f"found {text.count(b'(')} opening and {text.count(b')')} closing parentheses; "
            "expected as many of one kind as of the other"
        )
    open_lists = np.cumsum(_steps(tokens))
    if open_lists[-1] != 0 or (open_lists[:-1] < 1).any():
        raise ValueError(
            f"found {int((tokens < CLOSE).sum())} opening and {int((tokens == CLOSE).sum())} "
            "closing brackets; expected one list, each bracket closed once and inside it"
        )
    if ((tokens[:-1] < CLOSE) & (tokens[1:] == CLOSE)).any():
        raise ValueError("found an operator without arguments; expected at least one")
    return tokens


def depth(tokens: Expression) -> int:
    """Levels of the tree: 1 for a digit alone, 2 for a list of digits."""
    return 1 + int(np.cumsum(_steps(tokens)).max())


def value(tokens: Expression) -> int:
    """What an expression is worth, by a stack: the truth that labels are checked against."""
    apply: tuple[Callable[[list[int]], int], ...] = (
        min, max, lambda args: int(median(args)), lambda args: sum(args) % 10,
    )  # fmt: skip
    stack: list[Any] = [(None, [])]
    for token in tokens.tolist():
        if token < CLOSE:
            stack.append((apply[token - FIRST_OPERATOR], []))
        elif token == CLOSE:
            operator, arguments = stack.pop()
            stack[-1][1].append(operator(arguments))
        else:
            stack[-1][1].append(token - FIRST_DIGIT)
    found: int = stack[0][1][0]
    return found


def _steps(tokens: Expression) -> npt.NDArray[np.int8]:
    """+1 for an operator, -1 for a closing bracket."""
    steps: npt.NDArray[np.int8] = (tokens < CLOSE).astype(np.int8) - (tokens == CLOSE)
    return steps
