"""`primal cost`: what attentions cost by length, where they beat softmax, what fits a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..grammar import parse_count, parse_lengths, parse_options, parse_size
from ..grammar import show_number as short
from .options import AsJson, Heads, Option, Width
from .settings import UsageError, usage

if TYPE_CHECKING:
    from ..analysis import Shape

PREDICTED, MEASURED = "1k:1M", "256,512,1k,2k,4k"
TITLES = {
    "flops": ("FLOPs of a forward", 1000, ""),
    "bytes": ("bytes moved by a forward", 1024, "B"),
    "memory": ("memory of inference", 1024, "B"),
    "training_memory": ("memory of training", 1024, "B"),
}


def cost(
    width: Width = 512,
    heads: Heads = 8,
    rank: Annotated[int, typer.Option(help="Rank, for the attentions that have one.")] = 32,
    lengths: Annotated[
        str | None,
        typer.Option(
            help="Lengths: 1k:10M (steps of ten), 512:8k:x2 or 1k,4k,16k.",
            show_default=f"{PREDICTED}; with --measure {MEASURED}",
        ),
    ] = None,
    attention: Annotated[
        str | None,
        typer.Option(
            help="Between commas: names, with a kind (primal:tied) or options "
            "(performer:features=128); softmax:materialised forms the matrix.",
            show_default="all",
        ),
    ] = None,
    option: Option = None,
    batch_size: Annotated[int, typer.Option(help="Sequences in a batch.")] = 1,
    dtype: Annotated[str, typer.Option(help="float64, float32, bfloat16 or float16.")] = "float32",
    memory: Annotated[str, typer.Option(help="Memory of the device, such as 16G.")] = "16G",
    parameters: Annotated[
        str | None,
        typer.Option(
            help="Instead: depth and width of a model with so many parameters, such as 10M, of one "
            "attention (softmax unless named) with the given heads and rank."
        ),
    ] = None,
    classifier: Annotated[
        bool, typer.Option("--classifier", help="With --parameters: no language model is meant.")
    ] = False,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Time forwards here, on one thread, and compare."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """FLOPs, bytes and memory of one layer by attention and length; without --measure nothing is
    run."""
    from ..bench.candidates import choose_candidates
    from ..bench.costs import compare, costed_candidates, predict
    from .show import show_json

    if classifier and parameters is None:
        raise UsageError("--classifier is given without --parameters; expected both")
    if measure and parameters is not None:
        raise UsageError("--measure is given with --parameters; expected one of them")
    if parameters is not None:
        with usage():
            shapes = _shapes(parameters, attention, option, lengths, heads, rank, classifier)
        show_json([one.to_dict() for one in shapes]) if as_json else _show_shapes(shapes)
        return

    sizes = {"width": width, "heads": heads, "rank": rank, "batch_size": batch_size, "dtype": dtype}
    with usage():
        chosen = choose_candidates(attention, costed_candidates, parse_options(option or ()))
        numbers = parse_lengths(lengths or (MEASURED if measure else PREDICTED))
        found = predict(chosen, numbers, parse_size(memory), **sizes)
    if measure:
        found["times"] = compare(chosen, numbers, **sizes)
    if as_json:
        show_json(found)
    elif measure:
        _show_times(found["times"])
    else:
        _show(found, memory)


def _shapes(
    parameters: str,
    attention: str | None,
    option: list[str] | None,
    lengths: str | None,
    heads: int,
    rank: int,
    classifier: bool,
) -> list[Shape]:
    """A shape for every attention that is named."""
    from ..analysis import shape_for
    from ..bench.candidates import choose_candidates
    from ..bench.costs import costed_candidates

    own = parse_options(option or ())
    chosen = choose_candidates(attention or "softmax", costed_candidates, own)
    if odd := [one.text for one in chosen if not one.name]:
        raise ValueError(f"--attention has {odd[0]!r}; expected names of attentions")
    length, *more = parse_lengths(lengths or "1k")
    if more:
        raise ValueError(f"--lengths is {lengths!r}; expected one length with --parameters")
    return [
        shape_for(
            parse_count(parameters), attention=one.name, heads=heads, rank=rank, length=length,
            classifier=classifier, options=dict(one.options),
        )
        for one in chosen
    ]  # fmt: skip


def _show_shapes(shapes: list[Shape]) -> None:
    from .show import console, show_table

    show_table(
        ["attention", "layers", "width", "parameters", "regime", "FLOPs", "training state"],
        [
            [
                one.attention, str(one.depth), str(one.width), f"{one.parameters:,}", one.regime,
                f"{short(one.flops)} at N = {short(one.length)}", f"{short(one.memory, 1024)}B",
            ]
            for one in shapes
        ],
    )  # fmt: skip
    for one in shapes:
        lines = [f"{one.attention}: {one.why}.", *(f"Warning: {text}." for text in one.warnings)]
        if one.extrapolated:
            lines.append(f"Extrapolated: {'; '.join(one.extrapolated)}.")
        for line in lines:
            console().print(line, highlight=False, markup=False, soft_wrap=True)


def _show(found: dict[str, Any], memory: str) -> None:
    from .show import console, rank_note, show_table

    rows, sizes = found["attentions"], found["sizes"]
    heads = [f"N = {short(cost['length'])}" for cost in rows[0]["costs"]]
    for field, (title, base, unit) in TITLES.items():
        cells = [[short(cost[field], base) + unit for cost in row["costs"]] for row in rows]
        names = [[row["attention"], *own] for row, own in zip(rows, cells, strict=True)]
        show_table([title, *heads], names)
    lines, longest = [], rows[0]["costs"][-1]["length"]
    for row in rows:
        crosses, softmax = row["cheaper_from"], row["attention"].startswith("softmax")
        start = "-" if softmax else "never" if crosses is None else f"from N = {crosses:,}"
        fits = (f"N = {short(row['fits'][use])}" for use in ("inference", "training"))
        reach = row["costs"][-1]["coverage"]
        reached = "-" if reach is None else "all" if reach == longest else f"{reach:,}"
        lines.append([row["attention"], start, *fits, reached])
    show_table(
        [
            "attention", "fewer FLOPs than softmax", f"fits {memory}", "in training",
            f"reach others of {short(longest)}",
        ],
        lines,
    )  # fmt: skip
    if note := rank_note(sizes["rank"], sizes["width"], sizes["heads"]):
        console().print(note, highlight=False)
    if without := found.get("without_formula"):
        console().print(f"Without a cost formula: {', '.join(without)}.", highlight=False)


def _show_times(found: dict[str, Any]) -> None:
    from .show import console, show_table

    machine, rows = found["machine"], found["attentions"]
    console().print(
        f"One thread: {short(machine['flops'])}FLOP/s in a product, "
        f"{short(machine['bandwidth'])}B/s in a copy. Processor milliseconds of a forward, "
        "measured (measured / predicted):",
        highlight=False,
    )
    heads = ["attention", *(f"N = {short(n)}" for n in found["lengths"])]
    show_table(
        [*heads, "fit: ms + factor x predicted"],
        [[row["attention"], *map(_time, row["cells"]), _fit(row["fit"])] for row in rows],
    )
    show_table(
        ["faster than softmax from", "by FLOPs", "predicted", "measured"],
        [_crossings(row, found["lengths"][-1]) for row in rows if "faster_from" in row],
    )


def _time(cell: dict[str, Any]) -> str:
    if cell["measured"] is None:
        return "not run"
    return f"{1000 * cell['measured']:.3g} ({cell['measured'] / cell['predicted']:.1f})"


def _fit(fit: dict[str, float] | None) -> str:
    return "" if fit is None else f"{1000 * fit['overhead']:.2g} + {fit['factor']:.2f} x"


def _crossings(row: dict[str, Any], longest: int) -> list[str]:
    by = row["faster_from"]
    starts = ["never" if by[k] is None else f"{by[k]:,}" for k in ("flops", "predicted")]
    if by["measured"] is None:
        return [row["attention"], *starts, f"not up to {longest:,}"]
    estimate, slower = by["measured"]
    told = f"about {estimate:,.0f}" if slower else f"{estimate:,.0f} or before"
    return [row["attention"], *starts, told]
