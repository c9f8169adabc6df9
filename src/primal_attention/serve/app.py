"""The application: three addresses, limits, and one sentence for what is refused.

GET  /         a page to try it
GET  /health   {"status": "ok", ...}
POST /predict  cases in, probabilities out
"""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ..runs.extras import needs_extra
from ..version import __version__

with needs_extra("serve", "serving needs"):
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route

from ..tasks.base import DataError
from ..train.trained import TrainedModel
from .answers import BadRequest, answer


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and how many are worked on at once.

    Args:
        megabytes: of a body.
        seconds: in which a body must have come, and again in which it must be answered.
        cases: of a body.
        waiting: requests at a time; more are told to come again.
    """

    megabytes: float = 8.0
    seconds: float = 10.0
    cases: int = 1000
    waiting: int = 64

    def __post_init__(self) -> None:
        for name in ("megabytes", "seconds", "cases", "waiting"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a number above 0")


class Refused(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def make_app(model: TrainedModel, limits: Limits | None = None) -> Starlette:
    """The application for one model. Requests are answered one after the other, in a thread beside
    the server, so that /health answers while the model works. One that takes too long is told so;
    the thread goes on to its end before it takes the next."""
    limits = Limits() if limits is None else limits
    worker = ThreadPoolExecutor(1, "predict")
    present = 0

    async def page(request: Request) -> Response:
        return HTMLResponse(_page(model))

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", **facts(model)})

    async def predict(request: Request) -> Response:
        nonlocal present
        if present >= limits.waiting:
            busy = f"{present} requests are waiting; come again in a moment"
            return JSONResponse({"error": busy}, 503, {"Retry-After": "1"})
        present += 1
        try:
            body = await _body(request, limits)
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            work = functools.partial(answer, model, body, kind, most=limits.cases)
            async with asyncio.timeout(limits.seconds):
                found = await asyncio.get_running_loop().run_in_executor(worker, work)
            return JSONResponse(found)
        except Refused as refused:
            # what has not been read cannot be skipped: the connection ends with the answer
            return JSONResponse({"error": str(refused)}, refused.status, {"Connection": "close"})
        except (BadRequest, DataError) as wrong:
            return JSONResponse({"error": str(wrong)}, 400)
        except TimeoutError:
            said = f"no answer within {limits.seconds:g} s; send fewer or shorter cases"
            return JSONResponse({"error": said}, 503)
        finally:
            present -= 1

    async def failed(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "the server has failed; its log says why"}, 500)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/health", health),
            Route("/predict", predict, methods=["POST"]),
        ],
        exception_handlers={404: _nothing_here, 405: _nothing_here, 500: failed},
    )


def facts(model: TrainedModel) -> dict[str, Any]:
    """What a model is, for those who call it."""
    return {
        "run": model.path.name,
        "version": __version__,
        "reads": model.reads,
        "predicts": "numbers" if model.predicts_values else "classes",
        "classes": list(model.classes),
        "shape": dict(model.reader.shape),
        "columns": model.layout,
    }


async def _body(request: Request, limits: Limits) -> bytes:
    """The whole body, refused as soon as it is too large or too slow."""
    most = int(limits.megabytes * 2**20)
    too_large = Refused(413, f"the body is larger than {limits.megabytes:g} MB; send fewer cases")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > most:
        raise too_large
    found = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                found += part
                if len(found) > most:
                    raise too_large
    except TimeoutError:
        raise Refused(408, f"the body took longer than {limits.seconds:g} s to come") from None
    except ClientDisconnect:
        raise Refused(400, "the connection ended before the body did") from None
    if not found:
        raise Refused(400, "the body is empty; expected cases as JSON, csv or an image")
    return bytes(found)


async def _nothing_here(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    said = f"{request.method} {request.url.path} is not served; expected POST /predict, GET /health"
    return JSONResponse({"error": said}, status)


def _page(model: TrainedModel) -> str:
    import json

    text = (files(__package__) / "assets" / "page.html").read_text("utf-8")
    told = json.dumps(facts(model)).replace("<", "\\u003c")
    return text.replace("{{FACTS}}", told)
