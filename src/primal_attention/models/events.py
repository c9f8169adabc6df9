"""What happens next, and when: a causal model of events in continuous time, on any attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Unpack, cast, get_args

import torch
from torch import Tensor, nn

from ..attention.base import check_positive
from ..attention.rotation import Rotation, by_head
from ..names import check_choice
from ..theory.time import BochnerTime, TimeScales
from .causal import CausalLayer, check_causal, check_rotation, first_states, go_on, shortened
from .dropout import Dropout
from .embedding import TokenEmbedding
from .encoder import Activation, make_encoder
from .mixture import LogNormalMixture
from .options import Place
from .packing import pack

TimeUse = Literal["both", "input", "kernel", "order"]
SHORTEST_POSITION, LONGEST_POSITION = 1.0, 1000.0  # of rotations by order
SMALLEST_SCALE = -5.0  # log of the deviation of a part, against that of all log gaps


class GapScales(NamedTuple):
    """Of the log of the gaps between events: mean and deviation; and what stands for a gap of
    zero, which no log-normal distribution knows."""

    center: float
    spread: float
    least: float


USUAL_SCALES = TimeScales(1.0, 1000.0)
USUAL_GAPS = GapScales(0.0, 1.0, 1e-6)


class EventMemory(NamedTuple):
    """What a stream has seen: the state of every layer, the time of the first and of the last event
    (B,) float64, and how many there were."""

    layers: tuple[Any, ...]
    first: Tensor
    last: Tensor
    events: int


class NextEvent(NamedTuple):
    """What is expected after every event: logits (B, N, types), and the gap until it, None where
    its time is known."""

    types: Tensor
    gap: LogNormalMixture | None


class GapInput(nn.Module):
    """A gap as a row: a linear map of its Bochner features, its log, and whether there is one."""

    def __init__(self, waves: int, width: int, **place: Unpack[Place]) -> None:
        super().__init__()
        self.waves = BochnerTime(waves, **place)
        self.linear = nn.Linear(self.waves.features + 2, width, **place)

    def forward(self, gaps: Tensor, log: Tensor) -> Tensor:
        """Gaps (...) in float64, and their log in units of its deviation."""
        turns = self.waves(gaps) * math.sqrt(self.waves.features / 2)  # entries of size one
        numbers = torch.stack([log, (gaps > 0).double()], -1).to(turns.dtype)
        row: Tensor = self.linear(torch.cat([turns, numbers], -1))
        return row


class EventModel(nn.Module):
    """The type and the time of the next event from all events before it:

        p(k, tau | past) = softmax(W y)_k  sum_m w_m(y) LogNormal(tau; mu_m(y), s_m(y))

    where y is the row of the last event. An event enters as its type, and its time in two ways:

    - in the kernel: features of queries and keys are rotated by w_i t, so that the kernel depends
      on the time between two events (primal with tied weights, linear, softmax);
    - as input: Bochner features of the gap before the event, the log of that gap, and that of the
      time since the first event.

    The log of the number of events so far is always an input: a mean over the past hides it.

    `time` is "both", one of "kernel" and "input", or "order": then positions turn the features and
    no time is seen, except by the gaps that are predicted. Half of the pairs of a head are turned
    by time, half by order. All times count from the first event of their sequence: a model is
    blind to a shift of all.

    With `known_time` the time of the next event is given (`next_times`) and its type alone is
    predicted. The two settings answer different questions; their figures do not compare.

    `scales` and `gaps` are those of the training set, in its units: `TimeScales.of(times)`,
    `GapScales`; `set_scales_` sets them later. A stream of primal or linear layers has a memory of
    constant size.
    """

    gap_center: Tensor
    gap_spread: Tensor
    gap_least: Tensor
    frequencies: Tensor

    def __init__(
        self,
        types: int,
        *,
        attention: Sequence[str] = ("primal", "primal"),
        attention_options: Mapping[str, Mapping[str, Any]] | None = None,
        time: TimeUse = "both",
        known_time: bool = False,
        width: int = 64,
        heads: int = 4,
        feedforward: int | None = None,
        mixture: int = 8,
        waves: int = 16,
        dropout: float = 0.1,
        activation: Activation = "gelu",
        scales: TimeScales = USUAL_SCALES,
        gaps: GapScales = USUAL_GAPS,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        feedforward = 2 * width if feedforward is None else feedforward
        check_positive(
            types=types, width=width, heads=heads, feedforward=feedforward, mixture=mixture,
            waves=waves,
        )  # fmt: skip
        check_choice("time", time, get_args(TimeUse))
        check_choice("activation", activation, get_args(Activation))
        check_causal(attention, attention_options or {})
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.types, self.time, self.known_time = types, time, known_time
        self.embed = TokenEmbedding(types, width, **place)
        seen = time in ("both", "input")
        self.embed_gap = GapInput(waves, width, **place) if seen else None
        self.embed_next = GapInput(waves, width, **place) if known_time else None
        self.embed_past = nn.Linear(1 + seen, width, **place)
        self.norm = nn.LayerNorm(width, **place)
        self.dropout = Dropout(dropout)
        self.encoder = make_encoder(
            attention, attention_options, width=width, heads=heads, feedforward=feedforward,
            activation=nn.GELU() if activation == "gelu" else nn.ReLU(), dropout=dropout,
            norm="pre", layer=CausalLayer, primal={"weights": "tied"},
            settings={"max_length": 2**14, "causal": True}, **place,
        )  # fmt: skip
        self.predict_type = nn.Linear(width, types, **place)
        self.predict_gap = None if known_time else nn.Linear(width, 3 * mixture, **place)
        pairs = width // heads // 2
        by_time = -(-pairs // 2) if time in ("both", "kernel") else 0
        check_rotation(self.encoder, pairs)
        order = TimeScales(SHORTEST_POSITION, LONGEST_POSITION)
        self.by_time = by_time
        start = torch.ones(heads, pairs, dtype=torch.float64)
        if pairs > by_time:
            start[:, by_time:] = by_head(order.frequencies(heads * (pairs - by_time)), heads)
        kind: dict[str, Any] = {"device": device, "dtype": dtype or torch.get_default_dtype()}
        self.register_buffer("frequencies", start.to(**kind))
        for name in GapScales._fields:
            self.register_buffer(f"gap_{name}", torch.zeros((), **kind))
        self.set_scales_(scales, gaps)

    @torch.no_grad()
    def set_scales_(self, scales: TimeScales, gaps: GapScales) -> None:
        """Start frequencies and gaps at the scales of a training set."""
        for name, value in gaps._asdict().items():
            getattr(self, f"gap_{name}").fill_(value)
        if self.by_time:
            heads = len(self.frequencies)
            found = by_head(scales.frequencies(heads * self.by_time), heads)
            self.frequencies[:, : self.by_time] = found
        for part in (self.embed_gap, self.embed_next):
            if part is not None:
                part.waves.set_scales_(scales)

    def forward(
        self,
        types: Tensor,
        times: Tensor,
        next_times: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> NextEvent:
        """What comes after every event: types (B, N) int64, times (B, N) float64 that do not
        decrease, next_times (B, N) where they are known, padding (B, N), True = ignore, anywhere.
        """
        self._check(types, times, next_times, padding)
        if padding is not None:
            types = types.masked_fill(padding, 0)
        known = torch.stack([times, times if next_times is None else next_times], -1).double()
        flat, packing = pack(known, padding)
        known = packing.unpack(flat)  # (B, N', 2), padding at the end
        first = known[:, :1, 0]
        elapsed = known[..., 0] - first
        before = torch.cat([elapsed[:, :1], elapsed[:, :-1]], 1)
        rotation = self._rotation(elapsed, 0)
        rows = self._embed(
            pack(types, padding)[0],
            packing.pack(elapsed - before),
            packing.pack(known[..., 1] - known[..., 0]),
            packing.pack(elapsed),
            packing.pack(self._order(elapsed, 0)),
        )
        rows = self.encoder(rows, packing._replace(rotation=rotation))
        rows = packing.unpack_zeroed(rows)
        if padding is not None:
            rows = _put_back(rows, padding)
        return self._predict(rows)

    def without(
        self, hidden: Tensor, types: Tensor, times: Tensor, next_times: Tensor | None = None
    ) -> Tensor:
        """Logits (m, types) of the event after events (1, N) of which hidden (m, N) are left out:
        every row is that of a shorter history, in which the known time of the next event is that of
        the next one that is left."""
        ahead = times[:, -1:] if next_times is None else next_times[:, -1:]
        last, (kinds, moments) = shortened(hidden, types, times)
        padding = torch.arange(kinds.shape[1], device=kinds.device) > last.unsqueeze(-1)
        following = torch.cat([moments[:, 1:], moments[:, -1:]], 1)
        following.scatter_(1, last.unsqueeze(-1), ahead.expand(len(last), 1).to(moments))
        made = self(kinds, moments, following, padding)
        return cast(Tensor, made.types[torch.arange(len(kinds), device=kinds.device), last])

    # -- a stream ----------------------------------------------------------------------------------

    def init_memory(self, batch: int) -> EventMemory:
        """The memory of streams that have not begun; models that stream only."""
        start = torch.zeros(batch, dtype=torch.float64, device=self.embed.weight.device)
        return EventMemory(first_states(self.encoder, batch), start, start, 0)

    def prefill(
        self,
        types: Tensor,
        times: Tensor,
        memory: EventMemory | None = None,
        next_times: Tensor | None = None,
    ) -> tuple[NextEvent, EventMemory]:
        """What comes after each of further events (B, N) of streams, and the memory after them."""
        self._check(types, times, next_times, None)
        memory = self.init_memory(len(types)) if memory is None else memory
        times = times.double()
        first = memory.first if memory.events else times[:, 0]
        last = memory.last if memory.events else times[:, 0]
        before = torch.cat([last.unsqueeze(-1), times[:, :-1]], 1)
        ahead = times if next_times is None else next_times.double()
        elapsed = times - first.unsqueeze(-1)
        order = self._order(elapsed, memory.events)
        rows = self._embed(types, times - before, ahead - times, elapsed, order)
        rotation = self._rotation(elapsed, memory.events)
        rows, after = go_on(self.encoder, rows, memory.layers, rotation)
        seen = memory.events + types.shape[1]
        return self._predict(rows), EventMemory(after, first, times[:, -1], seen)

    # -- parts -------------------------------------------------------------------------------------

    def gap_of(self, gaps: Tensor) -> Tensor:
        """Gaps with what stands for those of zero."""
        return gaps.clamp(min=float(self.gap_least))

    def _rotation(self, elapsed: Tensor, events: int) -> Rotation:
        """By time and by order, of events at times (B, N) that come after so many others."""
        order = self._order(elapsed[:1], events)
        by_order = Rotation.of(order, self.frequencies[:, self.by_time :])
        by_order = Rotation(*(wave.expand(len(elapsed), -1, -1, -1) for wave in by_order))
        if not self.by_time:
            return by_order
        by_time = Rotation.of(elapsed, self.frequencies[:, : self.by_time])
        both = zip(by_time, by_order, strict=True)
        return Rotation(*(torch.cat(waves, -1) for waves in both))

    def _order(self, like: Tensor, events: int) -> Tensor:
        """The number of events before each, (B, N), where so many came before the first."""
        order = torch.arange(like.shape[1], dtype=torch.float64, device=like.device) + events
        return order.expand(len(like), -1)

    def _embed(
        self, types: Tensor, gaps: Tensor, ahead: Tensor, elapsed: Tensor, order: Tensor
    ) -> Tensor:
        """Rows (..., d) of events of some types (...), gaps after the last one and until the next,
        times since the first one, and numbers of events before."""
        past = [order.log1p() / math.log(LONGEST_POSITION)]
        if self.embed_gap is not None:
            past.append(self._scaled_log(elapsed))
        rows = self.embed(types) + self.embed_past(torch.stack(past, -1).to(self.frequencies.dtype))
        if self.embed_gap is not None:
            rows = rows + self.embed_gap(gaps, self._scaled_log(gaps))
        if self.embed_next is not None:
            rows = rows + self.embed_next(ahead, self._scaled_log(ahead))
        embedded: Tensor = self.dropout(self.norm(rows))
        return embedded

    def _scaled_log(self, gaps: Tensor) -> Tensor:
        """The log of gaps, in deviations from the mean of the training set."""
        return (self.gap_of(gaps).log() - self.gap_center.double()) / self.gap_spread.double()

    def _predict(self, rows: Tensor) -> NextEvent:
        types = self.predict_type(rows)
        if self.predict_gap is None:
            return NextEvent(types, None)
        weights, means, scales = self.predict_gap(rows).chunk(3, -1)
        apart = torch.linspace(-1.5, 1.5, weights.shape[-1], dtype=rows.dtype, device=rows.device)
        means = self.gap_center + self.gap_spread * (means + apart)
        scales = self.gap_spread.log() + scales.clamp(min=SMALLEST_SCALE)
        return NextEvent(types, LogNormalMixture(weights.log_softmax(-1), means, scales))

    def _check(
        self, types: Tensor, times: Tensor, next_times: Tensor | None, padding: Tensor | None
    ) -> None:
        if types.dim() != 2 or types.shape[1] == 0:
            raise ValueError(
                f"types has shape {tuple(types.shape)}; expected (batch, events) with an event"
            )
        for name, tensor in (("times", times), ("next_times", next_times), ("padding", padding)):
            if tensor is not None and tensor.shape != types.shape:
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)}; expected {tuple(types.shape)}"
                )
        if self.known_time and next_times is None:
            raise ValueError("next_times is None; expected the known times of the next events")


def _put_back(rows: Tensor, padding: Tensor) -> Tensor:
    """Rows (B, N', d) of sequences without their padding at the places (B, N) that are valid."""
    place = ((~padding).cumsum(-1) - 1).clamp(min=0).unsqueeze(-1)
    spread = rows.gather(1, place.expand(-1, -1, rows.shape[-1]).clamp(max=rows.shape[1] - 1))
    return spread.masked_fill(padding.unsqueeze(-1), 0.0)
