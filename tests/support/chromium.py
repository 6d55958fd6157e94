"""A browser without a window: Chromium, told what to do by its DevTools protocol over a pair of pipes."""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

SECONDS = 60


def is_there():
    return shutil.which("chromium") is not None


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        reads, self.into = os.pipe()
        self.out, writes = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (reads, writes)]  # away from 3 and 4, which it wants them to be
        words = ["chromium", "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
                 f"--user-data-dir={self.folder.name}", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]} {ends[0]}<&- {ends[1]}>&-', "bash", *words], pass_fds=ends,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (reads, writes, *ends):
            os.close(end)
        self.number, self.rest, self.events = 0, b"", []

    def receive(self, until):
        """The next message; what is no answer is an event, and kept."""
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.out], [], [], max(0, until - time.monotonic()))
            assert ready, "the browser says nothing"
            more = os.read(self.out, 1 << 20)
            assert more, f"the browser has ended: {self.process.wait()}"
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        if "id" not in message:
            self.events.append(message)
        return message

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self.into, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            got = self.receive(until)
            if got.get("id") == self.number:
                assert "error" not in got, (method, got["error"])
                return got["result"]

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.into)
        os.close(self.out)
        self.folder.cleanup()


class Page:
    def __init__(self, browser, url, width=1000, height=800, dark=False):
        self.browser, self.from_event = browser, len(browser.events)
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def js(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def wait(self, expression):
        until = time.monotonic() + SECONDS
        while not self.js(expression):
            assert time.monotonic() < until, f"never: {expression}"
            time.sleep(0.02)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Enter": 13}[key],
                      **({"text": "\r"} if kind == "keyDown" else {}))

    def told(self, *methods):
        """Parameters of the events of this page that have such a name."""
        return [e["params"] for e in self.browser.events[self.from_event:] if e.get("sessionId") == self.session and e["method"] in methods]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
