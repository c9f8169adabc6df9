"""Both ranks of test_data_parallel.py: `python data_parallel_worker.py FOLDER`."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import primal_attention as pa

KINDS = {
    "data": {"weights": "data", "anchors": 4},
    "free": {"weights": "free"},
    "tied": {"weights": "tied"},
    "causal": {"weights": "tied", "causal": True},
}
UNUSED = ((False,), (False, True))  # how often a case is run: those of the tied kind twice
CALLS = ("plain", "two documents", "checkpoint", "loss alone")


class Model(nn.Module):
    def __init__(self, kind, checkpointed):
        super().__init__()
        options = {"rank": 2, "dtype": torch.float64} | kind
        self.layers = nn.ModuleList(pa.PrimalAttention(8, 2, **options) for _ in range(2))
        self.checkpointed = checkpointed

    def forward(self, x):
        for layer in self.layers:
            if self.checkpointed:
                x = x + checkpoint(lambda h, layer=layer: layer(h)[0], x, use_reentrant=False)
            else:
                x = x + layer(x)[0]
        return x


def cases():
    """Every kind with some calls, every call with the kind that keeps most."""
    yield from (("tied", call, 0.5) for call in CALLS)
    yield "data", "two documents", 0.5
    yield from ((kind, "plain", 0.5) for kind in KINDS if kind != "tied")
    yield from ((kind, "plain", 0.0) for kind in ("data", "causal"))
    yield "free", "two documents", 0.0


def gradients(kind, call, eta, part, wrap):
    """The gradients of one step on a part of the batch, and what is left in the ledgers."""
    torch.manual_seed(0)
    model = Model(KINDS[kind], checkpointed=call == "checkpoint")
    x = torch.randn(4, 6, 8, dtype=torch.float64)[part]
    parallel = wrap(model)
    for _ in range(2):  # a reducer that was left waiting would say so in the second step
        model.zero_grad()
        out = parallel(x)
        if call == "two documents":
            out = out - parallel(x.flip(1) * 2.0)
        loss = 0.0 if call == "loss alone" else out.square().mean()
        if eta:
            loss = loss + eta * pa.ksvd_loss(parallel)
        loss.backward()
    left = sum(len(layer.ledger.entries) + len(layer.ledger.seen) for layer in model.layers)
    return {name: p.grad for name, p in model.named_parameters()} | {"left": left}


def main(folder):
    torch.set_num_threads(1)
    child = os.fork()  # torch is imported once
    rank = 0 if child else 1
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    part = slice(2 * rank, 2 * rank + 2)
    found = {}
    for case in cases():
        for unused in UNUSED[case[0] == "tied"]:

            def wrap(model, unused=unused):
                return DistributedDataParallel(model, find_unused_parameters=unused)

            found[*case, unused] = gradients(*case, part, wrap)
    torch.save(found, folder / f"rank{rank}.pt")
    distributed.destroy_process_group()
    if child:
        assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
