"""Masks, shapes, types and scales at random, for every attention that is registered.

Each sequence of a batch must get what it gets alone, in float64 and by the plain pass; what stands
in ignored positions (NaN, infinity) must not show; ignored rows are zero; causal layers do not see
ahead, to the last bit; a stream gives what the whole gives; outputs and gradients are finite.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from primal_attention import attention_info, available_attentions, make_attention

from .campaign import Budget, Tally, chance

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# what may be lost against the reference, in parts of its greatest value, at ordinary scales
LOST = {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.03}
LENGTHS = (1, 2, 3, 5, 8, 17, 31, 32, 33, 63, 64, 65, 70, 130)
SCALES = (0.01, 1.0, 1.0, 1.0, 10.0, 100.0)
CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "cosformer": {"max_length": (None, 130, 400)},
    "linformer": {"max_length": (130, 200), "projection": (1, 4, 9), "share_kv": (False, True)},
    "lka": {"kernel": (3, 5), "large": (3, 5), "dilation": (1, 3), "deformable": (False, True)},
    "longformer": {"window": (1, 5, 40), "global_tokens": (0, 1, 3)},
    "nystrom": {"landmarks": (1, 4, 20), "residual_width": (None, 3, 33)},
    "performer": {"features": (4, 16)},
    "primal": {
        "rank": (1, 4, 7),
        "weights": ("data", "free", "tied"),
        "feature_map": (None, "cosine", "elu", "exp"),
        "rank_multi": (1, 3, 10),
        "anchor_rule": ("sample", "mean", "paper"),
    },
    "reformer": {"bucket_size": (2, 16), "hashes": (1, 4)},
    "sinkhorn": {"iterations": (1, 5)},
    "soft": {"landmarks": (1, 4, 20)},
}


@dataclass
class Case:
    """A layer with its rows and mask; `context` are the rows of keys, where they are others."""

    name: str
    options: dict[str, Any]
    layer: nn.Module
    x: Tensor  # (B, N, d)
    context: Tensor | None  # (B, M, d)
    ignore: Tensor | None  # (B, M), True = ignore
    scale: float
    rng: Random

    @property
    def causal(self) -> bool:
        return bool(self.options.get("causal"))

    def __str__(self) -> str:
        shape = "x".join(map(str, self.x.shape))
        context = "" if self.context is None else f", context of {self.context.shape[1]}"
        ignored = "" if self.ignore is None else f", {int(self.ignore.sum())} ignored"
        words = [f"{k}={v}" for k, v in self.options.items()]
        kind = str(self.x.dtype).removeprefix("torch.")
        return f"{self.name}({', '.join(words)}) {shape} {kind}{context}{ignored}, x{self.scale:g}"


def run(budget: Budget, tally: Tally, folder: Path) -> None:
    torch.set_num_threads(1)
    worst: dict[torch.dtype, float] = {}
    for number in budget:
        case = draw(chance("masks", number), number)
        tally.cases += 1
        if case is None:
            tally.counts["refused in a sentence"] += 1
            continue
        try:
            lost = check(case)
        except Exception as error:
            tally.fail(number, f"{case}: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        if lost is not None:
            worst[case.x.dtype] = max(worst.get(case.x.dtype, 0.0), lost)
    for dtype, lost in worst.items():
        tally.figures[f"{str(dtype).removeprefix('torch.')} off by at most"] = f"{lost:.1e}"


# -- a case by chance ------------------------------------------------------------------------------


def draw(rng: Random, number: int) -> Case | None:
    """None for options that do not go together, which the layer must refuse by a ValueError."""
    name = rng.choice(available_attentions())
    options = {o: rng.choice(values) for o, values in CHOICES.get(name, {}).items()}
    options = {
        o: value
        for o, value in options.items()
        if value is not None or o not in ("feature_map", "max_length")
    }
    info, dtype = attention_info(name), rng.choice(DTYPES)
    if info.causal and rng.random() < 0.4:
        options["causal"] = True
    heads = rng.choice((1, 2, 3))
    width = heads * rng.choice((1, 2, 4, 5, 8))
    torch.manual_seed(number)
    try:
        layer = make_attention(name, width, heads, dtype=dtype, **options).eval()
    except ValueError:
        return None
    randomise(layer)
    scale = rng.choice(SCALES)
    batch, length = rng.randint(1, 4), rng.choice(LENGTHS)
    cross = info.cross and not options.get("causal") and rng.random() < 0.3
    context = scale * torch.randn(batch, rng.choice(LENGTHS), width) if cross else None
    x = scale * torch.randn(batch, length, width)
    ignore = draw_mask(rng, batch, length if context is None else context.shape[1])
    context = None if context is None else context.to(dtype)
    return Case(name, options, layer, x.to(dtype), context, ignore, scale, rng)


def randomise(layer: nn.Module) -> None:
    """Biases are zero at the start, where a mistake would not show."""
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.3)


def draw_mask(rng: Random, batch: int, length: int) -> Tensor | None:
    kind = rng.choice(("none", "end", "begin", "holes", "few", "whole sample"))
    if kind == "none":
        return None
    places = torch.arange(length)
    valid = torch.tensor([rng.randint(1, length) for _ in range(batch)])[:, None]
    if kind == "end":
        return places >= valid
    if kind == "begin":
        return places < length - valid
    ignore = torch.rand(batch, length) < (0.9 if kind == "few" else 0.4)
    if kind == "whole sample":
        ignore[rng.randrange(batch)] = True
    return ignore


# -- what must hold --------------------------------------------------------------------------------


def check(case: Case) -> float | None:
    """Raises where a promise is broken; gives how far the output is from the reference."""
    out = called(case)
    expect(out.shape == case.x.shape and out.dtype == case.x.dtype, "another shape or type")
    if not out.isfinite().all():
        expect(beyond(case), "the output is not finite")
        return None
    if case.context is None and case.ignore is not None:
        expect(bool((out[case.ignore] == 0).all()), "an ignored row is not zero")
    lost = against_reference(case, out)
    if case.causal:
        sees_no_future(case, out)
        if attention_info(case.name).streaming and case.ignore is None:
            streams(case, out)
    gradients_are_finite(case)
    return lost


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise ArithmeticError(what)


def called(case: Case) -> Tensor:
    """With anything in the ignored positions, and the mask as booleans or as numbers."""
    rows = case.x if case.context is None else case.context
    mask = case.ignore
    if mask is not None:
        filling = case.rng.choice((torch.nan, torch.inf, 0.0, 1e4))
        rows = rows.masked_fill(mask[..., None], filling)
        if case.rng.random() < 0.3:
            mask = torch.zeros(mask.shape, dtype=rows.dtype).masked_fill(mask, -torch.inf)
    given = (rows,) if case.context is None else (case.x, rows)
    return case.layer(*given, key_padding_mask=mask)[0]


def beyond(case: Case) -> bool:
    """Whether the right output is greater than the greatest number of the type."""
    plain = deepcopy(case.layer).double()
    rows = case.x if case.context is None else case.context
    if case.ignore is not None:
        rows = rows.masked_fill(case.ignore[..., None], 0)
    given = (rows,) if case.context is None else (case.x, rows)
    exact = plain(*(each.double() for each in given), key_padding_mask=case.ignore)[0]
    return bool(exact.abs().max() > torch.finfo(case.x.dtype).max)


def against_reference(case: Case, out: Tensor) -> float | None:
    """Each sequence alone, its valid rows only, in float64, by the plain pass."""
    dtype = case.x.dtype
    if dtype != torch.float64 and (case.scale > 1 or case.name == "reformer"):
        return None  # rounded scores of such a size, or buckets that they choose, are others
    plain = deepcopy(case.layer).double()
    if hasattr(plain, "fast"):
        plain.fast = False
    worst = 0.0
    biases = [p.abs().max().item() for n, p in plain.named_parameters() if n.endswith("bias")]
    for i, row in enumerate(case.x.double()):
        keys = row if case.context is None else case.context[i].double()
        keep = slice(None) if case.ignore is None else ~case.ignore[i]
        alone = keys[keep][None]
        if alone.shape[1] == 0:
            expect(bool((out[i] == 0).all()), "a sequence of nothing gives something")
            continue
        if case.context is None:
            exact, found = plain(alone)[0][0], out[i][keep]
        else:
            exact, found = plain(row[None], alone)[0][0], out[i]
        # what cancels a bias is rounded as the bias is
        largest = max(exact.abs().max().item(), *biases, 1e-3)
        worst = max(worst, (found.double() - exact).abs().max().item() / largest)
    expect(worst <= LOST[dtype], f"off by {worst:.2g} of the reference; expected {LOST[dtype]:g}")
    return worst


def sees_no_future(case: Case, out: Tensor) -> None:
    length = case.x.shape[1]
    t = case.rng.randint(1, length)
    other = case.x.clone()
    other[:, t:] = 3 * torch.randn_like(other[:, t:])
    changed = case.layer(other, key_padding_mask=case.ignore)[0]
    before = case.layer(case.x, key_padding_mask=case.ignore)[0]
    expect(torch.equal(changed[:, :t], before[:, :t]), "an output depends on what comes later")


def streams(case: Case, out: Tensor) -> None:
    if case.x.dtype not in (torch.float64, torch.float32) or case.scale > 1:
        return
    length = case.x.shape[1]
    first = case.rng.randint(0, length)
    state, parts = case.layer.init_state(len(case.x)), []  # type: ignore[operator]
    if first:
        found, state = case.layer.prefill(case.x[:, :first], state=state)  # type: ignore[operator]
        parts.append(found)
    for t in range(first, length):
        found, state = case.layer.step(case.x[:, t], state)  # type: ignore[operator]
        parts.append(found[:, None])
    lost = (torch.cat(parts, 1) - out).abs().max().item() / max(out.abs().max().item(), 1e-3)
    expect(lost <= LOST[case.x.dtype], f"streamed, it is off by {lost:.2g} of the whole")


def gradients_are_finite(case: Case) -> None:
    """In training mode. At great scales the gradient itself may leave the range of float16."""
    if case.scale > 1 and case.x.dtype == torch.float16:
        return
    case.layer.train().zero_grad()
    case.x.requires_grad_()
    out = case.layer(case.x, *([case.context] if case.context is not None else []),
                     key_padding_mask=case.ignore)[0]  # fmt: skip
    out.sin().sum().backward()
    leaves = [case.x, *case.layer.parameters()]
    bad = [p for p in leaves if p.grad is not None and not p.grad.isfinite().all()]
    expect(not bad, "a gradient is not finite")
    if case.context is None and case.ignore is not None and case.x.grad is not None:
        expect(bool((case.x.grad[case.ignore] == 0).all()), "an ignored row has a gradient")
