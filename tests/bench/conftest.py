"""Results as a benchmark leaves them, without measuring."""

import pytest
import torch

from primal_attention.bench import Cell, Results, Settings

ENVIRONMENT = {"processor": "a CPU", "cores": 2, "torch": "2.13.0", "primal-attention": "0.1.0"}


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def results():
    """Softmax is quadratic, primal linear, the floor half of it; the last cells are missing."""
    found = Results(
        settings=Settings(),
        candidates=("floor", "softmax", "primal"),
        lengths=(100, 200, 400),
        cell_budget=10.0,
        command="primal bench --attention floor,softmax,primal --lengths 100:400:x2",
        environment=ENVIRONMENT,
    )
    times = {"floor": lambda n: 1e-5 * n, "softmax": lambda n: 1e-6 * n**2}
    times["primal"] = lambda n: 2e-5 * n
    for name, time in times.items():
        for length in found.lengths:
            found.cells[name, length] = Cell(
                name, length, "measured", None, time(length),
                time(length) / times["floor"](length), time(length) / times["softmax"](length),
                0.01 * length, (time(length),) * 3,
            )  # fmt: skip
    found.cells["softmax", 400] = Cell("softmax", 400, "time", "too long, says the test")
    found.cells["primal", 400] = Cell("primal", 400, "error", "ValueError: no")
    return found
