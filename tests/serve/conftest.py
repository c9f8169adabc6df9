"""A real server in a process of its own, and a client that speaks HTTP to it."""

import http.client
import json
import os
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")


class Server:
    """`primal serve` at work."""

    def __init__(self, process: subprocess.Popen, address: str) -> None:
        self.process = process
        self.host, self.port = urlsplit(address).hostname, urlsplit(address).port

    def request(self, method, path, body=None, kind="application/json", connection=None):
        """Status and document."""
        own = connection or http.client.HTTPConnection(self.host, self.port, timeout=60)
        content = json.dumps(body) if isinstance(body, dict) else body
        own.request(method, path, content, {"Content-Type": kind} if content is not None else {})
        answer = own.getresponse()
        found = answer.read()
        if connection is None:
            own.close()
        document = answer.getheader("content-type", "").startswith("application/json")
        return answer.status, json.loads(found) if document else found.decode()

    def memory(self) -> float:
        """Resident, in MB."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def start(run, *options):
    words = [sys.executable, "-m", "primal_attention", "serve", str(run), "--port", "0", *options]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    said = process.stderr.readline()
    if " at http://" not in said:
        raise RuntimeError(said + process.stderr.read())
    server = Server(process, said.split(" at ")[1].split()[0])
    for _ in range(600):
        try:
            server.request("GET", "/health")
            return server
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server does not answer")


@pytest.fixture(scope="session")
def server(own_run):
    """One for all tests, with short limits."""
    found = start(own_run, "--max-seconds", "2", "--max-megabytes", "0.1", "--max-cases", "50")
    yield found
    found.process.terminate()
    assert found.process.wait(20) in (0, -15)
    found.process.stderr.close()


@pytest.fixture
def launch():
    """Starts further servers, and ends them."""
    started = []

    def begin(run, *options):
        started.append(start(run, *options))
        return started[-1]

    yield begin
    for one in started:
        one.process.terminate()
        one.process.wait(20)
        one.process.stderr.close()
