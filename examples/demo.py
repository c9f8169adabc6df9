"""What primal attention is for, in about three minutes: the same time for every attention.

    make demo          (or: python examples/demo.py --seconds 30)

1. **Look-up.** One position among 2,048 holds the answer to a question, and nothing but its key
   tells which. Four small networks, equal but for their attention, learn for the same seconds of
   one processor: accuracy against time.
2. **Memory** of a training step of one layer against the length.
3. **A real set**, BasicMotions: the same four, one seed. Here attention is not what matters.

The figures of the look-up are those of one seed; docs/results/kinds.md has more, and how the
settings were chosen. Everything measured lies in the folder --out, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

TASK = "uea/BasicMotions"
LENGTHS = (1024, 2048, 4096, 8192, 16384)  # of the memory
BUDGET = 20.0  # seconds of one step, about
SMALL = ("--width", "32", "--heads", "4", "--feedforward", "64")  # of the real set


class Rival(NamedTuple):
    """An attention: how `primal learn` and `primal bench` spell it, and its weight of the KSVD
    loss."""

    name: str
    spelled: str
    eta: float = 0.0


RIVALS = (
    Rival("primal", "primal:tied,feature_map=elu", eta=3.0),
    Rival("softmax", "softmax"),
    Rival("linear", "linear"),
    Rival("none", "none"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--seconds", type=float, default=30.0, help="of each attention")
    parser.add_argument("--length", type=int, default=2048, help="of the look-up")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--queries", type=int, default=32)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20, help="of the real set")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    given = parser.parse_args()
    out = new_folder(given.out)
    began = time.monotonic()
    try:
        print(
            f"1. Look-up: one of {given.length:,} positions has the answer; {given.seconds:g} s of"
        )
        print("   one processor for every attention")
        with ThreadPoolExecutor(given.workers) as pool:
            learned = dict(pool.map(lambda rival: (rival.name, learn(rival, given, out)), RIVALS))
        with ThreadPoolExecutor(max(1, given.workers - 1)) as pool:  # beside the memory
            training = pool.map(lambda rival: (rival.name, train(rival, given, out)), RIVALS)
            print("\n2. Memory of a training step of one layer against the length")
            try:
                memory = measure(out)
                print(f"\n3. A real set: {TASK}")
                real = dict(training)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        for name, result in real.items():
            print(f"   {name:8} {100 * result['accuracy']:5.1f} % in {result['seconds']:.0f} s")
    except KeyboardInterrupt:
        print(f"\nstopped; what was found so far lies in {out}", file=sys.stderr)
        return 130
    except subprocess.CalledProcessError as failed:
        print(failed.stderr or "", file=sys.stderr)
        return failed.returncode
    show(learned, memory, real)
    print(f"\n{verdict(learned, given)}")
    print(f"\nPicture    {draw(learned, memory, real, given, out)}")
    print(f"Figures    {out}/*.json, {(time.monotonic() - began) / 60:.1f} minutes in all")
    print("\nWhat to try next")
    print("  primal train --data yours.csv --target COLUMN     your own data")
    print("  python examples/japanese_vowels.py                three models on another real set")
    print("  python examples/long_sequence.py                  100,000 positions, their spectrum")
    return 0


# -- 1. the look-up --------------------------------------------------------------------------------

_printing = Lock()

LEARN = """
import json, sys
from primal_attention.bench.learning import Lesson, learning
lesson = json.loads(sys.argv[1])
lesson["task_options"] = tuple(map(tuple, lesson["task_options"]))
for point in learning(Lesson(**lesson)):
    print(json.dumps(point), flush=True)
"""


def learn(rival: Rival, given: argparse.Namespace, out: Path) -> list[list[float]]:
    """[seconds, steps, accuracy] as the network learns, in a process of its own."""
    lesson = {
        "attention": rival.spelled,
        "length": given.length,
        "seconds": given.seconds,
        "seed": given.seed,
        "eta": rival.eta,
        "batch": given.batch_size,
        "learning_rate": given.lr,
        "task_options": [["queries", given.queries]] if given.queries != 4 else [],
    }
    points = []
    process = subprocess.Popen(
        [sys.executable, "-c", LEARN, json.dumps(lesson)],
        stdout=subprocess.PIPE,
        text=True,
        env=one_thread(),
    )
    with process:
        if process.stdout is not None:
            for line in process.stdout:
                points.append(json.loads(line))
                seconds, steps, accuracy = points[-1]
                bar = "#" * round(20 * accuracy)
                with _printing:
                    print(
                        f"   {rival.name:8} {seconds:5.0f} s {steps:6} steps   accuracy "
                        f"{accuracy:.2f} {bar}",
                        flush=True,
                    )
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, rival.name)
    (out / f"lookup-{rival.name}.json").write_text(json.dumps({"lesson": lesson, "points": points}))
    return points


# -- 2. memory and time against length -------------------------------------------------------------


def measure(out: Path) -> dict[str, dict[int, tuple[float, float]]]:
    """Megabytes above the inputs, and seconds of one processor, of a training step of one layer,
    forward and backward, by attention and length; what takes more than BUDGET is left out."""
    import torch

    from primal_attention.bench.candidates import parse_candidate
    from primal_attention.bench.memory import NotMeasured
    from primal_attention.bench.run import MAKER, open_meter
    from primal_attention.bench.settings import Settings
    from primal_attention.bench.steps import make_inputs, make_step

    settings = Settings(width=64, heads=4, rank=8, threads=1)
    torch.set_num_threads(1)
    found: dict[str, dict[int, tuple[float, float]]] = {}
    with open_meter(settings) as meter:
        for rival in RIVALS:
            if rival.name == "none":  # nothing to remember
                continue
            found[rival.name] = {}
            for length in LENGTHS:
                inputs = make_inputs(settings, length)
                step = make_step(settings, parse_candidate(rival.spelled), inputs)
                step()  # libraries load with the first
                seconds = least_seconds(step)
                job = settings.to_dict(), rival.spelled, length
                try:
                    peak = meter.peak(MAKER, *job, seconds=10 * BUDGET)
                except NotMeasured:
                    break
                found[rival.name][length] = peak.megabytes, seconds
                if 4 * seconds > BUDGET:  # twice as long may take four times as much
                    break
            print(f"   {rival.name:8} {_row(found[rival.name])}", flush=True)
    (out / "memory.json").write_text(json.dumps(found))
    return found


def least_seconds(step: Callable[[], object], rounds: int = 7, enough: float = 1.0) -> float:
    """Processor seconds of a step: the least of a few, which other programs disturb least."""
    found: list[float] = []
    while len(found) < rounds and sum(found) < enough:
        start = time.process_time()
        step()
        found.append(time.process_time() - start)
    return min(found)


def _row(found: dict[int, tuple[float, float]]) -> str:
    return "  ".join(f"{length // 1024}k: {mb:.0f} MB" for length, (mb, _) in found.items())


# -- 3. a real set ---------------------------------------------------------------------------------


def train(rival: Rival, given: argparse.Namespace, out: Path) -> dict[str, Any]:
    """The result of `primal train`."""
    words = ["train", TASK, "--attention", rival.name, *SMALL, "--epochs", str(given.epochs)]
    words += ["--out", str(out), "--name", f"real-{rival.name}", "--json", "--quiet"]
    environment = one_thread()
    environment.pop("PRIMAL_ATTENTION_DATA", None)  # always the set inside the package
    done = subprocess.run(
        [sys.executable, "-m", "primal_attention", *words],
        capture_output=True,
        text=True,
        env=environment,
    )
    done.check_returncode()
    result: dict[str, Any] = json.loads(done.stdout)
    return result


# -- what came out ---------------------------------------------------------------------------------


def show(
    learned: dict[str, list[list[float]]],
    memory: dict[str, dict[int, tuple[float, float]]],
    real: dict[str, dict[str, Any]],
) -> None:
    longest = max(length for one in memory.values() for length in one)
    heads = ("look-up", "steps", f"MB, {longest // 1024}k", f"ms, {longest // 1024}k", "real set")
    print(f"\n{'':10}" + "".join(f"{head:>12}" for head in heads))
    for rival in RIVALS:
        _, steps, accuracy = learned[rival.name][-1]
        mb, seconds = memory.get(rival.name, {}).get(longest, (None, None))
        cells = [
            f"{100 * accuracy:.0f} %",
            f"{steps:.0f}",
            "" if mb is None else f"{mb:.0f}",
            "" if seconds is None else f"{1000 * seconds:.0f}",
            f"{100 * real[rival.name]['accuracy']:.1f} %",
        ]
        print(f"{rival.name:10}" + "".join(f"{cell:>12}" for cell in cells))
    first = next(iter(real.values()))
    cases = sum(map(sum, first["confusion"]))
    print("look-up: accuracy after equal seconds of one processor, one seed, chance 6 %;")
    print(f"MB and ms: a training step of a layer of width 64 at {longest:,} positions;")
    print(f"real set: {TASK}, {first['label']}, {cases} cases, one seed")


def verdict(learned: dict[str, list[list[float]]], given: argparse.Namespace) -> str:
    """One sentence on what was seen, whatever it is."""
    ends = {name: points[-1][2] for name, points in learned.items()}
    best = max(ends, key=lambda name: ends[name])
    others = ", ".join(f"{name} {100 * a:.0f} %" for name, a in ends.items() if name != best)
    said = (
        f"In {given.seconds:g} s {best} finds the one of {given.length:,} positions in "
        f"{100 * ends[best]:.0f} % of the questions; {others}."
    )
    if best != "primal":
        said += "\nPrimal attention is NOT ahead here; docs/results/kinds.md has other seeds."
    elif ends["none"] > 0.9 * ends[best]:
        said += "\nWithout attention it is as good: this run shows nothing."
    return said


def draw(
    learned: dict[str, list[list[float]]],
    memory: dict[str, dict[int, tuple[float, float]]],
    real: dict[str, dict[str, Any]],
    given: argparse.Namespace,
    out: Path,
) -> str:
    """One picture: accuracy against time, large; time and memory of a step against length."""
    from primal_attention.report.style import PALETTE, End, label_ends, new_figure, save, style

    try:
        with style():
            colours = dict(zip([rival.name for rival in RIVALS], PALETTE, strict=False))
            headline = f"Find one position among {given.length:,}: accuracy in equal time"
            figure = new_figure(10.0, 4.6, headline)
            grid = figure.add_gridspec(2, 5)
            main_axes = figure.add_subplot(grid[:, :3])
            for name, points in learned.items():
                x = [0.0, *(seconds for seconds, _, _ in points)]
                y = [6.25, *(100 * accuracy for _, _, accuracy in points)]
                wide = 3.0 if name == "primal" else 1.6
                main_axes.plot(x, y, color=colours[name], linewidth=wide)
            main_axes.set(xlabel="seconds of one processor", ylabel="accuracy, %", ylim=(0, 103))
            ends = [
                End((p[-1][0], 100 * p[-1][2]), name, colours[name]) for name, p in learned.items()
            ]
            label_ends(main_axes, ends, gap=0.05)
            for row, (what, unit) in enumerate((("time", "ms"), ("memory", "MB"))):
                axes = figure.add_subplot(grid[row, 3:])
                ends = []
                for name, found in memory.items():
                    values = [1000 * s if what == "time" else mb for mb, s in found.values()]
                    axes.plot(list(found), values, color=colours[name], marker="o", markersize=3)
                    ends.append(End((list(found)[-1], values[-1]), name, colours[name]))
                axes.set(xscale="log", yscale="log", ylabel=f"{what} of a step, {unit}")
                axes.set_xticks(LENGTHS, [f"{n // 1024}k" for n in LENGTHS])
                axes.minorticks_off()
                label_ends(axes, ends, gap=0.14)
            axes.set_xlabel("positions")
            return str(save(figure, out / "demo", formats=["png"])[0])
    except ModuleNotFoundError as missing:
        return f"none: {missing}"


def one_thread() -> dict[str, str]:
    """Networks this small gain nothing from a second thread, and lose much on a busy machine."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def new_folder(wanted: Path) -> Path:
    """The folder itself, or with a number if it exists: nothing is ever overwritten."""
    for folder in numbered(wanted):
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError("numbers do not end")


def numbered(wanted: Path) -> Iterator[Path]:
    yield wanted
    yield from (wanted.with_name(f"{wanted.name}-{number}") for number in count(2))


if __name__ == "__main__":
    sys.exit(main())
