"""Time and memory of a BERT against length: as it is, with torch's fused softmax, and converted.

    python benchmarks/converted_length.py                    # 12 layers of width 256, 4 heads
    python benchmarks/converted_length.py --converted 4 6 12 # so many of its attentions
    python benchmarks/converted_length.py --lengths 512 2048 --layers 4

One sequence, forward without gradients, one thread, random weights (they do not change the time).
Seconds are CPU time of the process, the least of some repetitions; memory is the peak of a process
of its own, above what it has after the model is built. The model has as many positions as inputs.
Tensors of a megabyte or more are given back to the system as they are freed (the C library's
`MALLOC_MMAP_THRESHOLD_`), so that memory is what is in use: by itself glibc keeps holes of
tens of megabytes, as many as their order happens to leave. `--heap` measures with them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")


def cell(converted: int, length: int, layers: int, repeats: int) -> dict[str, float]:
    """Seconds and megabytes of a model with so many converted attentions at one length."""
    import torch
    import transformers

    import primal_attention as pa

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=591, hidden_size=256, num_attention_heads=4, intermediate_size=512,
        num_hidden_layers=layers, max_position_embeddings=length,
    )  # fmt: skip
    model = transformers.BertModel(config).eval()
    if converted:
        pa.convert_(model, layers=range(converted))
    ids = torch.randint(5, 591, (1, length))
    before = _peak()
    seconds = []
    with torch.no_grad():
        for _ in range(repeats):
            start = time.process_time()
            model(input_ids=ids)
            seconds.append(time.process_time() - start)
    return {"seconds": min(seconds), "megabytes": _peak() - before}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--converted", type=int, nargs="+", help="attentions; all of them")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--heap", action="store_true", help="with the holes of the heap")
    parser.add_argument("--cell", nargs=2, type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        converted, length = asked.cell
        print(json.dumps(cell(converted, length, asked.layers, asked.repeats)))
        return
    world = dict(os.environ) if asked.heap else {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}

    def measured(converted: int, length: int) -> dict[str, float]:
        sizes = ["--layers", str(asked.layers), "--repeats", str(asked.repeats)]
        words = [sys.executable, __file__, "--cell", str(converted), str(length), *sizes]
        done = subprocess.run(words, env=world, capture_output=True, text=True, check=True)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found

    print("length  converted  softmax s  primal s  faster  softmax MB  primal MB  less memory")
    for length in asked.lengths:
        old = measured(0, length)
        for converted in asked.converted or [asked.layers]:
            new = measured(converted, length)
            print(
                f"{length:6}  {converted:9}  {old['seconds']:9.2f}  {new['seconds']:8.2f}  "
                f"{old['seconds'] / new['seconds']:5.1f}x  {old['megabytes']:10.0f}  "
                f"{new['megabytes']:9.0f}  {old['megabytes'] / max(new['megabytes'], 0.1):10.1f}x",
                flush=True,
            )


if __name__ == "__main__":
    main()
