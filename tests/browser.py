"""Debian's chromium, driven through its debugging pipe."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no chromium here: apt-get install chromium"
)
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--disable-background-networking", "--remote-debugging-pipe",
)  # fmt: skip
# chromium reads commands from descriptor 3 and answers on 4
START = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(word), fcntl.F_DUPFD, 20) for word in sys.argv[1:3]]
for target, end in zip((3, 4), ends):
    os.dup2(end, target)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One tab, by the DevTools protocol: JSON messages that end with a zero byte."""

    def __init__(self, profile):
        into, self._write = os.pipe()
        self._read, out = os.pipe()
        browser = [BROWSER, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        words = [sys.executable, "-c", START, str(into), str(out), *browser]
        self._process = subprocess.Popen(
            words, pass_fds=(into, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(into)
        os.close(out)
        self._number, self._rest, self.events, self._session = 0, b"", [], None
        target = self("Target.createTarget", url="about:blank")["targetId"]
        found = self("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None and not method.startswith(("Browser.", "Target.")):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _next(self):
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], 60)
            assert ready, "chromium does not answer"
            data = os.read(self._read, 1 << 16)
            assert data, "chromium is gone"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def run(self, script):
        """The value of an expression in the page."""
        found = self("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, page, *, width=1200, height=900, scheme="light", media=""):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self("Emulation.setEmulatedMedia", media=media, features=features)
        self.events.clear()
        address = page.absolute().as_uri() if isinstance(page, Path) else page
        self("Page.navigate", url=address)
        until(
            lambda: self.run("document.readyState + location.href").startswith(f"complete{address}")
        )

    def problems(self, own="file://"):
        """What the console says, exceptions, and what the page asked others than `own` for."""
        found = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                found.append(parameters)
            elif method == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if not url.startswith((own, "data:", "about:")):
                    found.append(url)
        return found

    def pointer(self, kind, x, y):
        pressed = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
        self("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def place(self, selector, share_x=0.5, share_y=0.5):
        """Scroll to an element; a point of it in the window."""
        return self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            f"return [b.left + {share_x} * b.width, b.top + {share_y} * b.height]; }})()"
        )

    def click(self, selector):
        x, y = self.place(selector)
        self.pointer("mousePressed", x, y)
        self.pointer("mouseReleased", x, y)

    def hover(self, selector, *shares):
        self.pointer("mouseMoved", *self.place(selector, *shares))
        return self.run("document.getElementById('tip').hidden ? null : tip.textContent")

    def picture(self, path):
        height = self.run("document.documentElement.scrollHeight")
        width = self.run("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = self("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self):
        try:
            self("Browser.close")
        finally:
            self._process.wait(20)
            os.close(self._read)
            os.close(self._write)


def until(condition, seconds=30):
    """Wait for what happens in another process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
