"""Limits, and the page."""

import pytest

pytest.importorskip("starlette")

import primal_attention as pa
from primal_attention.serve.app import Limits, facts, make_app


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
