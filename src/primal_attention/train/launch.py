"""The processes of a run, through Lightning Fabric.

One process computes in the caller. With more devices on this machine the caller is process 0 and
starts the others, `python -m primal_attention.train.helper`. Under torchrun, which is how several
machines work together, every process exists already.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any

from ..runs.errors import RunError
from ..runs.extras import needs_extra
from .config import EngineConfig

if TYPE_CHECKING:
    from lightning_fabric import Fabric

HELPER = "primal_attention.train.helper"
READY, GO = "ready", "go"  # of a process that is started, and what it is told
MEETING_SECONDS = 60  # that the processes have to find each other once all are ready
PATIENCE_SECONDS = 30  # that the other processes have to end


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_main_process() -> bool:
    """Whether this process is the one that writes and should print."""
    return not under_torchrun() or os.environ.get("RANK", "0") == "0"


@contextmanager
def processes(config: EngineConfig) -> Iterator[Fabric]:
    """Fabric, ready to use, in every process of a run; the same code runs in each."""
    if under_torchrun():
        local, world = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
        yield _launch(config, local, world // local)
    elif config.nodes > 1:
        raise RunError(
            f"nodes is {config.nodes}; expected a start by torchrun on each of them: torchrun "
            f"--nnodes {config.nodes} --nproc-per-node {config.devices} --rdzv-backend c10d "
            "--rdzv-endpoint HOST:PORT -m primal_attention train ..."
        )
    elif config.devices == 1:
        yield _launch(config, 1, 1)
    elif config.devices > (here := _devices_here(config.accelerator)):
        raise RunError(f"devices is {config.devices}; expected at most {here}, all that are here")
    else:
        with _helpers(config) as (port, wait), member(config, 0, port, wait) as fabric:
            yield fabric
            fabric.broadcast(None)  # no more runs


def _devices_here(accelerator: str) -> int:
    """Processors for the CPU, else graphics cards."""
    import torch

    on_cuda = accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available()
    return torch.cuda.device_count() if on_cuda else os.cpu_count() or 1


def _launch(config: EngineConfig, devices: int, nodes: int) -> Fabric:
    fabric = _fabric(config, devices, nodes)
    fabric.launch()
    return fabric


def _fabric(config: EngineConfig, devices: int, nodes: int, local: Any = None) -> Fabric:
    """Fabric, not yet in touch with others; `local` is the environment of processes that meet on
    this machine."""
    with needs_extra("train", "training needs"):
        import safetensors  # noqa: F401
        from lightning_fabric import Fabric
        from lightning_fabric.strategies.ddp import DDPStrategy
        from lightning_fabric.utilities.exceptions import MisconfigurationException
    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    options = _without_buffers()
    if local is not None:
        options["timeout"] = timedelta(seconds=MEETING_SECONDS)
    try:
        return Fabric(
            accelerator=config.accelerator,
            devices=devices,
            num_nodes=nodes,
            # buffers are the same everywhere, and in evaluation the processes do not run in step
            strategy=DDPStrategy(**options) if devices * nodes > 1 else "auto",
            precision=config.precision,  # type: ignore[arg-type]
            plugins=local,
        )
    except (MisconfigurationException, RuntimeError) as error:
        raise RunError(
            f"accelerator {config.accelerator!r} with {devices} devices cannot be used: {error}"
        ) from error


def _without_buffers() -> dict[str, Any]:
    """The option that leaves buffers alone, by its name in this version of torch."""
    from torch.nn.parallel import DistributedDataParallel

    known = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    return {name: False}


@contextmanager
def member(
    config: EngineConfig, rank: int, port: int, wait: Callable[[], None]
) -> Iterator[Fabric]:
    """Fabric in process `rank` of those on this machine; everything global is restored after it.
    `wait` returns when all are ready to meet. One that dies before they have met is missed after
    MEETING_SECONDS; later, its connections end with it."""
    import torch
    from lightning_fabric.plugins.environments.lightning import LightningEnvironment

    class Local(LightningEnvironment):
        creates_processes_externally = True
        main_address = "127.0.0.1"
        main_port = port

        def local_rank(self) -> int:
            return rank

        def node_rank(self) -> int:
            return 0

    environ, threads = dict(os.environ), torch.get_num_threads()
    try:
        fabric = _fabric(config, config.devices, 1, Local())
        wait()
        fabric.launch()
        _take_time()
        yield fabric
    finally:
        _part()
        os.environ.clear()
        os.environ.update(environ)
        torch.set_num_threads(threads)


def _take_time() -> None:
    """Once the processes have met, they wait for each other as long as is usual."""
    from torch.distributed import distributed_c10d as c10d
    from torch.distributed.constants import default_pg_timeout

    c10d._set_pg_timeout(default_pg_timeout)
    c10d._get_default_store().set_timeout(default_pg_timeout)


def _part() -> None:
    from torch.distributed import distributed_c10d as c10d

    if c10d.is_initialized():
        c10d.destroy_process_group()
    else:  # a meeting that failed was counted, and the next one would have another name
        c10d._world.group_count = 0


@contextmanager
def _helpers(config: EngineConfig) -> Iterator[tuple[int, Callable[[], None]]]:
    """Start the processes 1, 2, ... on this machine; gives the port where all meet, and what waits
    until they are ready."""
    from lightning_fabric.plugins.environments.lightning import find_free_network_port

    port = find_free_network_port()
    with ExitStack() as stack:
        started = [
            stack.enter_context(_helper(config, rank, port)) for rank in range(1, config.devices)
        ]

        def wait() -> None:
            for process, log in started:
                if process.stdout is None or process.stdout.readline().strip() != READY:
                    raise RunError(f"a process of the run did not start: {_last_line(log)}")
            for process, log in started:
                try:
                    os.write(process.stdin.fileno(), f"{GO}\n".encode())  # type: ignore[union-attr]
                except BrokenPipeError as error:
                    raise RunError(f"a process of the run ended: {_last_line(log)}") from error

        try:
            yield port, wait
        except RuntimeError as error:
            for process, log in started:
                with suppress(subprocess.TimeoutExpired):
                    if process.wait(PATIENCE_SECONDS):
                        raise RunError(f"a process of the run ended: {_last_line(log)}") from error
            raise


@contextmanager
def _helper(
    config: EngineConfig, rank: int, port: int
) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            [sys.executable, "-m", HELPER, str(rank), str(port), json.dumps(config.to_dict())],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield process, log
            process.wait(PATIENCE_SECONDS)
        except BaseException:
            process.kill()
            raise


def _last_line(log: IO[str]) -> str:
    log.seek(0)
    return (log.read().strip().splitlines() or ["it said nothing"])[-1]
