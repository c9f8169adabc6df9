"""Limits, and the page."""

import asyncio
import threading
import time

import pytest

pytest.importorskip("starlette")

import primal_attention as pa
from primal_attention.serve.app import Limits, facts, make_app

from ..browser import Browser, needs_browser


@pytest.mark.parametrize("name", ["megabytes", "seconds", "cases", "waiting"])
def test_limits_are_above_zero(name):
    with pytest.raises(ValueError, match=f"{name} is 0; expected a number above 0"):
        Limits(**{name: 0})


def test_the_page_has_the_facts_of_the_model(server, own_run):
    status, page = server.request("GET", "/")
    assert status == 200
    assert "{{FACTS}}" not in page
    assert '"classes": ["ok", "worn"]' in page
    assert "https://" not in page  # nothing is fetched from elsewhere
    assert facts(pa.load_run(own_run))["columns"]["id"] == "machine"


def test_a_run_named_like_a_tag_stays_text(own_run, tmp_path):
    import shutil

    run = shutil.copytree(own_run, tmp_path / "<b>run")
    app = make_app(pa.load_run(run))
    from primal_attention.serve.app import _page

    assert app.routes
    assert "<b>run" not in _page(pa.load_run(run))


def test_rows_of_a_table_are_answered(table_run, people):
    from primal_attention.serve.answers import BadRequest, answer

    model = pa.load_run(table_run)
    found = answer(model, people.read_bytes(), "text/csv", most=200)["predictions"]
    assert [one["case"] for one in found[:2]] == ["r0", "r1"]
    assert [one["class"] for one in found] == model.predict(people).tolist()
    assert facts(model)["columns"]["kinds"]["city"] == "category"
    assert facts(model)["reads"] == "rows"
    with pytest.raises(BadRequest, match="more than 50 rows"):
        answer(model, people.read_bytes(), "text/csv", most=50)
    with pytest.raises(BadRequest, match="expected text/csv"):
        answer(model, b"{}", "application/json", most=50)


@pytest.mark.slow
@needs_browser
def test_the_page_of_a_table_offers_a_row(launch, table_run, tmp_path):
    server = launch(table_run)
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(f"http://127.0.0.1:{server.port}/")
        assert browser.problems(own=f"http://127.0.0.1:{server.port}/") == []
        assert browser.run("document.getElementById('body').value").split("\n") == [
            "age,city,since",
            "0,,2026-01-31",
        ]
    finally:
        browser.close()


def test_work_that_is_given_up_does_not_pile_up(monkeypatch):
    """Of six requests that take too long one is worked on, the others never begin."""
    at_once, most, begun = 0, 0, 0
    counting = threading.Lock()

    def slow(*_, **__):
        nonlocal at_once, most, begun
        with counting:
            at_once, begun = at_once + 1, begun + 1
            most = max(most, at_once)
        time.sleep(0.5)
        with counting:
            at_once -= 1
        return {}

    monkeypatch.setattr("primal_attention.serve.app.answer", slow)
    app = make_app(None, Limits(seconds=0.1))

    async def post():
        async def receive():
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message):
            statuses.append(message.get("status"))

        scope = {"type": "http", "method": "POST", "path": "/predict", "headers": []}
        await app(scope | {"query_string": b""}, receive, send)

    async def several():
        await asyncio.gather(*(post() for _ in range(3)))
        await asyncio.gather(*(post() for _ in range(3)))

    statuses = []
    asyncio.run(several())
    assert statuses.count(503) == 6
    assert (most, begun) == (1, 1)
