"""Ten thousand requests to a served run, one after another: none lost, latency, memory.

python benchmarks/serving.py RUN [--requests 10000] [--cases 1] [--connections 1]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--cases", type=int, default=1, help="in a request")
    parser.add_argument("--connections", type=int, default=1, help="at once")
    given = parser.parse_args()
    words = [sys.executable, "-m", "primal_attention", "serve", given.run, "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        port = int(process.stderr.readline().split("http://127.0.0.1:")[1].split()[0])
        measure(given, process.pid, port)
    finally:
        process.terminate()
        process.wait()


def measure(given: argparse.Namespace, pid: int, port: int) -> None:
    shape = json.loads(ask(port, "GET", "/health")[1])["shape"]
    rng = np.random.default_rng(0)
    size = given.cases, shape["channels"], shape["max_length"]
    body = json.dumps({"series": rng.standard_normal(size).round(4).tolist()})
    seconds: list[float] = []
    lost: list[int] = []
    memory = {}

    def work(count: int) -> None:
        own = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(count):
            begin = time.perf_counter()
            status, _ = ask(port, "POST", "/predict", body, own)
            seconds.append(time.perf_counter() - begin)
            if status != 200:
                lost.append(status)

    work(200)  # warm
    seconds.clear()
    memory["before"] = resident(pid)
    begin, cpu = time.perf_counter(), cpu_seconds(pid)
    share = given.requests // given.connections
    threads = [threading.Thread(target=work, args=(share,)) for _ in range(given.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = time.perf_counter() - begin
    memory["after"] = resident(pid)
    found = {
        "requests": len(seconds),
        "lost": len(lost),
        "a second": round(len(seconds) / whole, 1),
        "latency ms": {
            f"p{p}": round(1000 * float(np.percentile(seconds, p)), 2) for p in (50, 95, 99)
        },
        "CPU ms a request": round(1000 * (cpu_seconds(pid) - cpu) / len(seconds), 2),
        "resident MB": memory,
        "shape": size,
    }
    print(json.dumps(found))


def ask(
    port: int,
    method: str,
    path: str,
    body: str | None = None,
    connection: http.client.HTTPConnection | None = None,
) -> tuple[int, bytes]:
    for _ in range(600):
        own = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            own.request(method, path, body, {"Content-Type": "application/json"})
            answer = own.getresponse()
            return answer.status, answer.read()
        except ConnectionRefusedError:  # it is still loading
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


def resident(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return round(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
