"""The server over real connections: answers, refusals, limits, and many requests."""

import http.client
import json
import socket
import threading
import time

import numpy as np
import pytest

import primal_attention as pa
from primal_attention.runs.errors import RunError
from primal_attention.serve.run import listen

ONE = {"series": [[[0.1, 0.2, 0.3], [1.0, None, 3.0]]]}


def test_health_says_what_is_served(server):
    status, found = server.request("GET", "/health")
    assert status == 200
    assert found["status"] == "ok"
    assert found["classes"] == ["ok", "worn"]


def test_json_and_csv_give_the_probabilities_of_the_model(server, own_run, sensors):
    model = pa.load_run(own_run)
    status, found = server.request("POST", "/predict", ONE)
    assert status == 200
    expected = model.predict_proba([np.array([[0.1, 0.2, 0.3], [1.0, np.nan, 3.0]])])[0]
    (one,) = found["predictions"]
    assert list(one["probabilities"].values()) == pytest.approx(expected, abs=1e-6)
    status, found = server.request("POST", "/predict", sensors.read_bytes(), "text/csv")
    assert status == 200
    assert [p["case"] for p in found["predictions"]] == [f"m{i}" for i in range(24)]
    rows = [list(p["probabilities"].values()) for p in found["predictions"]]
    np.testing.assert_allclose(rows, model.predict_proba(sensors), atol=1e-6)


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"{", "application/json", "the body is not JSON"),
        (b"[" * 5000, "application/json", "the body is not JSON"),
        ({"x": 1}, "application/json", 'expected {"series": [...]}'),
        ({"series": []}, "application/json", "series is empty"),
        ({"series": [[[1], ["a"]]]}, "application/json", "case 0 has 'a'; expected finite"),
        ({"series": [[[1], [1e999]]]}, "application/json", "case 0 has 'inf'"),
        ({"series": [[[1], [10**400]]]}, "application/json", "case 0 has '1000"),
        ({"series": [[[1, 2], [3]]]}, "application/json", "lengths 2, 1; expected one length"),
        ({"series": [[1, 2, 3]]}, "application/json", "case 0 has 1 channels; expected 2"),
        ({"series": [[[1], [1]]] * 51}, "application/json", "more than 50 cases"),
        (b"machine,at\n", "text/csv", "the body has no column 'vibration'"),
        (b"machine,at,vibration,current\n", "text/csv", "the table has no rows"),
        (
            b"machine,at,vibration,current\na,0,1,x\n",
            "text/csv",
            "the body, line 2, column 'current': found 'x'; expected a finite number",
        ),
        (b"\xff\xfe", "text/csv", "expected text in UTF-8"),
        (b"x", "text/plain", "the type is 'text/plain'; expected application/json or text/csv"),
        (b"", "text/csv", "the body is empty"),
    ],
)
def test_what_cannot_be_understood_is_one_sentence(server, body, kind, said):
    status, found = server.request("POST", "/predict", body, kind)
    assert status == 400
    assert said in found["error"]
    assert "\n" not in found["error"]
    assert "Traceback" not in found["error"]


def test_other_addresses_and_methods(server):
    assert server.request("GET", "/nothing")[0] == 404
    status, found = server.request("GET", "/predict")
    assert status == 405
    assert "expected POST /predict" in found["error"]


def test_a_body_that_is_too_large_is_refused_before_it_has_come(server):
    status, found = server.request("POST", "/predict", b"x" * 200_000, "text/csv")
    assert status == 413
    assert "larger than 0.1 MB" in found["error"]
    # likewise one in pieces, whose size nobody says
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    pieces = (b"x" * 10_000 for _ in range(20))
    try:
        connection.request("POST", "/predict", pieces, {"Content-Type": "text/csv"})
    except OSError:  # the server has hung up while we were still sending
        return
    assert connection.getresponse().status == 413


def test_a_body_that_comes_too_slowly_is_refused(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow:
        slow.sendall(
            b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: text/csv\r\n"
            b"Content-Length: 100\r\n\r\nmachine"
        )
        # others are served meanwhile
        assert server.request("POST", "/predict", ONE)[0] == 200
        answer = b"".join(iter(lambda: slow.recv(4096), b"")).decode()
    assert answer.startswith("HTTP/1.1 408")
    assert "took longer than 2 s" in answer


def test_a_client_that_leaves_does_not_matter(server):
    with socket.create_connection(("127.0.0.1", server.port)) as rude:
        rude.sendall(b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nma")
    with socket.create_connection(("127.0.0.1", server.port)) as other:
        other.sendall(b"\x16\x03\x01 what is this\r\n\r\n")
        assert other.recv(1000).startswith(b"HTTP/1.1 400")
    assert server.request("GET", "/health")[0] == 200


def test_requests_at_once_are_all_answered(server):
    found = []

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for _ in range(25):
            found.append(server.request("POST", "/predict", ONE, connection=connection))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 100
    assert {status for status, _ in found} == {200}
    assert len({json.dumps(answer) for _, answer in found}) == 1


def test_a_port_that_is_taken():
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(RunError, match=rf"cannot listen on 127.0.0.1 port {port}: address"):
            listen("127.0.0.1", port)


def test_addresses_of_version_6(launch, own_run):
    try:
        listen("::1", 0).close()
    except RunError as error:
        pytest.skip(str(error))
    server = launch(own_run, "--host", "::1")
    assert server.request("POST", "/predict", ONE)[0] == 200


@pytest.mark.slow
def test_a_head_that_never_ends_is_hung_up_on(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
        began = time.monotonic()
        slow.sendall(b"POST /predict HTTP/1.1\r\nHost: a\r\nX: ")
        assert slow.recv(10) == b""
        assert time.monotonic() - began > 5


@pytest.mark.slow
def test_ten_thousand_requests_none_lost_memory_flat(launch, own_run):
    server = launch(own_run)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def ask(count):
        return [
            server.request("POST", "/predict", ONE, connection=connection)[0] for _ in range(count)
        ]

    assert set(ask(1000)) == {200}
    before = server.memory()
    assert set(ask(9000)) == {200}
    assert server.memory() < before + 4
