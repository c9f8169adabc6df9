"""The registry as a page: `python -m primal_attention.attention.page > docs/attentions.md`."""

from __future__ import annotations

import inspect
import re
import sys

from ..runs.tables import to_markdown
from . import AttentionInfo, attention_info, available_attentions

COMMON = ("bias", "batch_first", "device", "dtype")

INTRODUCTION = """\
# Attentions

<!-- Written by `python -m primal_attention.attention.page` from the registry; do not edit. -->

All are made by `make_attention(name, embed_dim, num_heads, **options)` and called as
`nn.MultiheadAttention`. Every one honours `key_padding_mask` exactly: a sequence gives the same
alone and padded in a batch, wherever the padding stands. What one cannot do raises.

- **time**: growth with the length N
- **masks**: `padding` is `key_padding_mask`; `pairs` are masks of single pairs, `attn_mask`
- **causal**: has the option `causal=True`
- **cross**: keys may be of another sequence than queries
- **streaming**: a causal layer continues token by token, `init_state`, `prefill` and `step`
- **any length**: no maximal length must be given
- **summary**: what `summarise` keeps of a context: a `constant` number of numbers, which add and
  subtract, or the context itself, `linear`; see [summaries](summaries.md)
"""

OPTIONS = """\
The options `bias=True`, `batch_first=True`, `device=None` and `dtype=None` are those of
`nn.MultiheadAttention` and not repeated below. An option without a default must be given.
"""


def page() -> str:
    """Every registered attention in Markdown."""
    found = [attention_info(name) for name in available_attentions()]
    parts = [INTRODUCTION, _table(found), OPTIONS, *map(_section, found)]
    return "\n".join(parts)


def _table(found: list[AttentionInfo]) -> str:
    head = ["attention", "time", "masks", "causal", "cross", "streaming", "any length"]
    head += ["summary"]
    rows = []
    for info in found:
        facts = (info.causal, info.cross, info.streaming, info.any_length)
        masks = "padding, pairs" if info.pair_masks else "padding"
        name = f"[{info.name}](#{info.name})"
        said = ("yes" if fact else "no" for fact in facts)
        rows.append([name, info.cost, masks, *said, info.summary or "no"])
    return to_markdown(head, rows) + "\n"


def _section(info: AttentionInfo) -> str:
    about = documented(info.build)
    facts = [f"- class: `{info.build.__name__}`", f"- paper: {info.paper}"]
    for name, option in info.options.items():
        if name not in COMMON:
            facts.append(f"- `{_option(option)}`: {about.get(name, 'not documented')}")
    return "\n".join([f"## {info.name}", "", _summary(info), "", *facts, ""])


def documented(build: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say about arguments, under `Args:`."""
    found = {}
    for kind in reversed(build.__mro__):
        _, _, text = inspect.cleandoc(vars(kind).get("__doc__") or "").partition("\nArgs:\n")
        for name, lines in re.findall(r"^    (\w+): (.+(?:\n {5,}.+)*)", text, re.MULTILINE):
            found[name] = " ".join(lines.split())
    return found


def _summary(info: AttentionInfo) -> str:
    """The first paragraph of the mechanism's file."""
    text = inspect.getdoc(sys.modules[info.build.__module__]) or ""
    return text.partition("\n\n")[0].replace("\n", " ")


def _option(option: inspect.Parameter) -> str:
    kind = inspect.formatannotation(option.annotation).strip("'")
    default = "" if option.default is option.empty else f" = {option.default!r}"
    return f"{option.name}: {kind}{default}"


if __name__ == "__main__":
    print(page(), end="")
