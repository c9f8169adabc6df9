"""`primal cost`: what attentions cost by length, where they beat softmax, what fits a device."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from .settings import UsageError

MEASURED = "256,512,1k,2k,4k"
RANK_NOTE = "rank = {rank} is not below the width of a head, {width} / {heads}: it reduces nothing."
_SCALE = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}


def cost(
    d: Annotated[int, typer.Option("--d", help="Width of the model.")] = 512,
    heads: Annotated[int, typer.Option(help="Heads.")] = 8,
    rank: Annotated[int, typer.Option(help="Directions s of primal layers.")] = 32,
    length: Annotated[
        str | None,
        typer.Option(
            help="Lengths: 1k:10M (steps of ten) or 1k,4k,16k.",
            show_default="1k:1M; with --measure 256,512,1k,2k,4k",
        ),
    ] = None,
    attention: Annotated[
        str | None, typer.Option(help="Names, comma-separated.", show_default="all")
    ] = None,
    batch: Annotated[int, typer.Option(help="Sequences at a time.")] = 1,
    dtype: Annotated[str, typer.Option(help="float64, float32, bfloat16 or float16.")] = "float32",
    memory: Annotated[str, typer.Option(help="Memory of the device, such as 16G.")] = "16G",
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Time forwards here, on one thread, and compare."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """FLOPs, bytes and memory of one layer by attention and length; without --measure nothing is
    run."""
    sizes = {"width": d, "heads": heads, "rank": rank, "batch": batch, "dtype": dtype}
    usual = MEASURED if measure else "1k:1M"
    try:
        lengths, device = parse_lengths(length or usual), parse_size(memory)
        kinds = parse_kinds(attention)
        found = predict(kinds, lengths, device, **sizes)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if measure:
        from .cost_times import compare, show

        times = compare(kinds, sorted(lengths), **sizes)
        found |= {"times": times}
    if as_json:
        from .show import show_json

        show_json(found)
    elif measure:
        show(found["times"])
    else:
        _show(found, memory)


def predict(
    kinds: dict[str, tuple[str, dict[str, Any]]],
    lengths: list[int],
    device: int,
    **sizes: Any,
) -> dict[str, Any]:
    """What the command prints: every kind of attention with its costs, crossing and longest
    sequence."""
    from ..analysis.cost import costed_attentions, crossing, largest_length, layer_cost
    from ..attention import available_attentions

    rows = []
    for kind, (name, options) in kinds.items():
        costs = [layer_cost(name, n, options=options, **sizes).to_dict() for n in lengths]
        fits = {
            "inference": largest_length(name, device, options=options, **sizes),
            "training": largest_length(name, device, training=True, options=options, **sizes),
        }
        softmax = name == "softmax"
        crosses = None if softmax else crossing(name, options=options, **sizes)
        rows.append({"attention": kind, "costs": costs, "cheaper_from": crosses, "fits": fits})
    without = sorted(set(available_attentions()) - set(costed_attentions()))
    found = {"sizes": sizes, "device_memory": device, "attentions": rows}
    return found | ({"without_formula": without} if without else {})


def parse_kinds(text: str | None) -> dict[str, tuple[str, dict[str, Any]]]:
    """Names of the registry; softmax and primal stand for several kinds."""
    from ..analysis.cost import costed_attentions

    names = costed_attentions() if text is None else [name.strip() for name in text.split(",")]
    kinds: dict[str, tuple[str, dict[str, Any]]] = {}
    for name in names:
        if name == "softmax":
            kinds["softmax, fused"] = name, {}
            kinds["softmax, matrix formed"] = name, {"matrix": True}
        elif name == "primal":
            for weights in ("data", "free", "tied"):
                kinds[f"primal, {weights}"] = name, {"weights": weights}
        else:
            kinds[name] = name, {}
    return kinds


def parse_lengths(text: str) -> list[int]:
    """ "1k:10M" (steps of ten, both ends included) or "1k,4k,16k"."""
    if ":" not in text:
        return [parse_count(part) for part in text.split(",")]
    first, last = (parse_count(part) for part in text.split(":", 1))
    if last < first:
        raise ValueError(f"the lengths are {text!r}; expected the shorter one first")
    lengths = []
    while first < last:
        lengths.append(first)
        first *= 10
    return [*lengths, last]


def parse_count(text: str) -> int:
    """ "1k" is 1,000 and "10M" 10,000,000."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgb]?)\s*", text, flags=re.IGNORECASE)
    value = 0 if found is None else round(float(found[1]) * _SCALE[found[2].lower()])
    if value < 1:
        raise ValueError(f"{text!r} is no length; expected a number such as 4096, 1k or 10M")
    return value


def parse_size(text: str) -> int:
    """ "16G" is 16 * 2^30 bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt])(?:i?b)?\s*", text, flags=re.IGNORECASE)
    if found is None:
        raise ValueError(f"{text!r} is no memory; expected a number such as 512M or 16G")
    return round(float(found[1]) * 1024.0 ** (1 + "kmgt".index(found[2].lower())))


def _show(found: dict[str, Any], memory: str) -> None:
    from .show import console, new_table

    lengths = [cost["length"] for cost in found["attentions"][0]["costs"]]
    titles = {
        "flops": ("FLOPs of a forward", 1000, ""),
        "bytes": ("bytes moved by a forward", 1024, "B"),
        "memory": ("memory of inference", 1024, "B"),
        "training_memory": ("memory of training", 1024, "B"),
    }
    for field, (title, base, unit) in titles.items():
        table = new_table(title, *(f"N = {short(n)}" for n in lengths))
        for row in found["attentions"]:
            cells = (short(cost[field], base) + unit for cost in row["costs"])
            table.add_row(row["attention"], *cells)
        console().print(table, highlight=False)
        console().print()
    table = new_table(
        "attention", "fewer FLOPs than softmax", f"fits {memory}", "in training",
        f"reach others of {short(lengths[-1])}",
    )  # fmt: skip
    for row in found["attentions"]:
        crosses = row["cheaper_from"]
        softmax = row["attention"].startswith("softmax")
        start = "-" if softmax else "never" if crosses is None else f"from N = {crosses:,}"
        fits = (f"N = {short(row['fits'][use])}" for use in ("inference", "training"))
        reach = row["costs"][-1]["coverage"]
        reached = "-" if reach is None else "all" if reach == lengths[-1] else f"{reach:,}"
        table.add_row(row["attention"], start, *fits, reached)
    console().print(table, highlight=False)
    sizes = found["sizes"]
    if sizes["rank"] >= sizes["width"] // sizes["heads"]:
        console().print(f"\n{RANK_NOTE.format(**sizes)}", highlight=False)
    if without := found.get("without_formula"):
        console().print(f"\nWithout a cost formula: {', '.join(without)}.", highlight=False)


def short(value: float, base: int = 1000) -> str:
    """ "1.2M"; three digits at most."""
    for unit in ("", "k", "M", "G", "T", "P"):
        if value < base or unit == "P":
            return f"{value:.3g}{unit}" if value < 1000 else f"{value:.0f}{unit}"
        value /= base
    raise AssertionError("unreachable")
