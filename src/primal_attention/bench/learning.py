"""What attentions learn in equal time: a small network on a generated task, accuracy by seconds.

Seconds are those of the processor on one thread, so that other work on the machine counts little;
drawing sequences and looking at the accuracy are not counted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention import PrimalAttention
from ..attention.projected import ProjectedAttention
from ..names import check_choice
from ..tasks.generated import GeneratedTask, Questions, make_generated
from ..theory.loss import Growth, ksvd_loss
from .candidates import parse_candidate
from .settings import Settings

SHORTEST = 64  # where a curriculum starts
LOOKS = 12  # at the accuracy, in a run
STARTS = "own", "symmetric", "independent"  # of queries and keys
EXAMINED = 128  # sequences of a look
BETAS = 0.9, 0.95  # of AdamW: the KSVD loss begins large, and its squares are soon forgotten


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One run. attention: as in `primal bench`, "primal:tied,feature_map=elu". eta: weight of the
    KSVD loss. curriculum: the length doubles in the first half of the time from 64 to `length`,
    and batches of short sequences are as many positions. start: of queries and keys, the
    attention's own, or the same for all: W_k equal to W_q, or drawn for itself. growth: of the KSVD
    loss, as in `ksvd_loss`. task_options: (name, number), ..."""

    attention: str
    task: str = "lookup"
    length: int = 512
    seconds: float = 60.0
    seed: int = 0
    eta: float = 0.0
    curriculum: bool = False
    batch: int = 8
    width: int = 64
    heads: int = 4
    layers: int = 2
    rank: int = 8
    learning_rate: float = 2e-3
    start: str = "own"
    growth: str = "log"
    task_options: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        for name in ("seconds", "batch", "layers", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a positive number")
        if self.eta < 0:
            raise ValueError(f"eta is {self.eta}; expected a number of at least 0")
        check_choice("start", self.start, STARTS)
        check_choice("growth", self.growth, get_args(Growth))
        parse_candidate(self.attention)
        if self.length < self.made_task.shortest:
            raise ValueError(
                f"length is {self.length}; expected at least {self.made_task.shortest}"
            )

    @property
    def made_task(self) -> GeneratedTask:
        return make_generated(self.task, **dict(self.task_options))

    @property
    def key(self) -> str:
        """What the run is known by in a file of results."""
        return json.dumps(asdict(self))

    def length_at(self, share: float) -> int:
        """The length of the sequences when a share of the time has passed."""
        first = max(SHORTEST, self.made_task.shortest)
        if not self.curriculum or self.length <= first:
            return self.length
        doublings = (self.length / first - 1).__ceil__().bit_length()
        return min(self.length, first << int(2 * share * doublings))


class Point(NamedTuple):
    """Accuracy after so many seconds and steps."""

    seconds: float
    steps: int
    accuracy: float


class SmallNetwork(nn.Module):
    """Embedded fields, pre-norm layers with an attention of the registry, answers at places."""

    def __init__(self, lesson: Lesson, task: GeneratedTask) -> None:
        super().__init__()
        width, candidate = lesson.width, parse_candidate(lesson.attention)
        settings = Settings(width=width, heads=lesson.heads, rank=lesson.rank)
        self.embeddings = nn.ModuleList(nn.Embedding(n, width) for n in task.fields)
        self.layers = nn.ModuleList()
        for _ in range(lesson.layers):
            layer = nn.TransformerEncoderLayer(
                width, lesson.heads, 2 * width, 0.0, batch_first=True, norm_first=True
            )
            attention = candidate.build(settings, lesson.length)
            _start(attention, lesson.start)
            layer.register_module("self_attn", attention)  # whatever its class
            self.layers.append(layer)
        self.norm, self.answer = nn.LayerNorm(width), nn.Linear(width, task.classes)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Logits (B, q, classes) of tokens (B, N, k) at places (B, q)."""
        x = sum(part(at) for part, at in zip(self.embeddings, tokens.unbind(-1), strict=True))
        for layer in self.layers:
            x = layer(x)
        asked = x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
        logits: Tensor = self.answer(self.norm(asked))
        return logits


@torch.no_grad()
def _start(attention: nn.Module, start: str) -> None:
    """Start W_k anew, in attentions that have queries and keys of their own."""
    if start == "own" or not isinstance(attention, PrimalAttention | ProjectedAttention):
        return
    if isinstance(attention, ProjectedAttention) and attention.parts < 3:
        return
    width = attention.embed_dim
    queries, keys = attention.in_proj_weight[: 2 * width].chunk(2)
    if start == "symmetric":
        keys.copy_(queries)
    else:
        keys.copy_(queries.flatten()[torch.randperm(queries.numel())].view_as(queries))


def learn(lesson: Lesson, see: Callable[[Point], None] = lambda point: None) -> list[Point]:
    """Train for the lesson's seconds; `see` is told every look at the accuracy."""
    return list(learning(lesson, see))


def learning(lesson: Lesson, see: Callable[[Point], None] = lambda point: None) -> Iterator[Point]:
    """The looks of a lesson as they come."""
    torch.manual_seed(lesson.seed)
    task = lesson.made_task
    network = SmallNetwork(lesson, task)
    optimiser = torch.optim.AdamW(network.parameters(), lesson.learning_rate, BETAS)
    generator = torch.Generator().manual_seed(1 + 100 * lesson.seed)
    seconds, steps, looked = 0.0, 0, 0.0
    with _one_thread():
        while seconds < lesson.seconds:
            length = lesson.length_at(seconds / lesson.seconds)
            batch = lesson.batch * (lesson.length // length)
            questions = task.draw(batch, length, generator)
            start = time.process_time()
            _step(network, optimiser, questions, lesson)
            seconds, steps = seconds + time.process_time() - start, steps + 1
            if seconds - looked >= lesson.seconds / LOOKS or seconds >= lesson.seconds:
                looked = seconds
                found = _accuracy(network, task, lesson)
                point = Point(round(seconds, 2), steps, round(found, 4))
                see(point)
                yield point


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _step(
    network: nn.Module, optimiser: torch.optim.Optimizer, questions: Questions, lesson: Lesson
) -> None:
    logits = network(questions.tokens, questions.places)
    loss = F.cross_entropy(logits.flatten(0, 1), questions.answers.flatten())
    if lesson.eta:
        loss = loss + lesson.eta * ksvd_loss(network, growth=cast(Growth, lesson.growth))
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimiser.step()


@torch.no_grad()
def _accuracy(network: nn.Module, task: GeneratedTask, lesson: Lesson) -> float:
    """On sequences of the full length that training does not see, the same at every look."""
    generator = torch.Generator().manual_seed(7)
    network.eval()
    right = asked = 0
    for _ in range(EXAMINED // 8):
        questions = task.draw(8, lesson.length, generator)
        found = network(questions.tokens, questions.places).argmax(-1)
        right += int((found == questions.answers).sum())
        asked += questions.answers.numel()
    network.train()
    return right / asked


# -- many runs, in one file ------------------------------------------------------------------------


def make_lessons(
    attentions: Sequence[str], seeds: Sequence[int], etas: Sequence[float], common: Lesson
) -> list[Lesson]:
    """All attentions with all seeds; those that record the objective J with every eta."""
    lessons = []
    for attention in attentions:
        own = etas if parse_candidate(attention).name == "primal" else (0.0,)
        for eta in own:
            for seed in seeds:
                lessons.append(replace(common, attention=attention, eta=eta, seed=seed))
    return lessons


def run_lessons(
    lessons: Sequence[Lesson],
    path: Path,
    see: Callable[[Lesson, Point], None] = lambda lesson, point: None,
) -> dict[str, list[Point]]:
    """Every lesson that the file does not know yet; a line is added for each. By key."""
    known = read_lessons(path)
    for lesson in lessons:
        if lesson.key in known:
            continue
        points = learn(lesson, lambda point, lesson=lesson: see(lesson, point))  # type: ignore[misc]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"lesson": asdict(lesson), "points": points}) + "\n")
        known[lesson.key] = points
    return {lesson.key: known[lesson.key] for lesson in lessons}


def read_lessons(path: Path) -> dict[str, list[Point]]:
    """The runs of a file, by key; a line that an interruption cut is left out."""
    found: dict[str, list[Point]] = {}
    if not path.exists():
        return found
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry: dict[str, Any] = json.loads(line)
        except ValueError:
            continue
        found[json.dumps(entry["lesson"])] = [Point(*point) for point in entry["points"]]
    return found


def summarise(lessons: Sequence[Lesson], found: Mapping[str, list[Point]]) -> list[dict[str, Any]]:
    """For each attention and eta: mean accuracy over the seeds at a quarter, a half and the end of
    the time, that of every seed at the end, and the mean number of steps."""
    groups: dict[tuple[str, float], list[list[Point]]] = {}
    for lesson in lessons:
        groups.setdefault((lesson.attention, lesson.eta), []).append(found[lesson.key])
    rows = []
    for (attention, eta), runs in groups.items():
        row: dict[str, Any] = {"attention": attention, "eta": eta}
        for name, share in (("quarter", 0.25), ("half", 0.5), ("end", 1.0)):
            row[name] = fmean(_at(points, share).accuracy for points in runs)
        row["seeds"] = [points[-1].accuracy for points in runs]
        row["steps"] = fmean(points[-1].steps for points in runs)
        rows.append(row)
    return rows


def _at(points: Sequence[Point], share: float) -> Point:
    """The last look before a share of the time has passed, or the first one."""
    until = share * points[-1].seconds
    return [points[0], *(point for point in points if point.seconds <= until)][-1]
