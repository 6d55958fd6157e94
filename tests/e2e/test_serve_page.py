"""The page of cotan serve, in a browser: what is asked and answered, answers that grow as they come, stopping, what a second turn
sends, light and dark, narrow screens, keys that are wanted; no error in the console, and nothing asked of another place."""
import json
import os
import re
import shutil
import time
from pathlib import Path
from urllib.parse import urlparse

import pytest
from support import chromium
from support.serving import Server, make_model, make_parrot

pytestmark = pytest.mark.skipif(not os.environ.get("COTAN_TEST_ALL"), reason="starts a browser; make test-all does")
OBSERVE = """window.seen = []; new MutationObserver(() => seen.push(document.querySelector(".assistant:last-child .said")?.textContent.length))
.observe(document.getElementById("turns"), {childList: true, subtree: true, characterData: true})"""
ANSWERED = "!document.getElementById('send').disabled"
SHOTS = os.environ.get("COTAN_SCREENSHOTS")  # a folder for pictures, to look at


@pytest.fixture(scope="module")
def browser():
    assert chromium.is_there(), "chromium is not installed"
    browser = chromium.Browser()
    yield browser
    browser.close()


def without_end(folder):
    """It writes until its context is full."""
    (folder / "generation_config.json").unlink(missing_ok=True)
    for name in ("config.json", "tokenizer_config.json"):
        was = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({k: v for k, v in was.items() if not k.startswith("eos")}))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    parrot = make_parrot(tmp_path_factory.mktemp("parrot") / "parrot")
    writer = make_model(tmp_path_factory.mktemp("writer") / "writer", context=16384)
    without_end(writer)
    server = Server(parrot, writer)
    yield server
    server.stop()


def ask(page, text):
    page.js("document.getElementById('text').focus()")
    page.type(text)
    page.press("Enter")


def answer(page, text):
    ask(page, text)
    page.wait(f"document.querySelectorAll('.user').length && {ANSWERED}")


def said(page):
    return page.js("[...document.querySelectorAll('.turn')].map(t => [t.classList[1], t.querySelector('.said').innerText.trim()])")


def shoot(page, name):
    if SHOTS:
        page.screenshot(Path(SHOTS) / f"{name}.png")


def check(page, server):
    """Nothing went wrong, and all that was asked for is the server's."""
    errors = [e for e in page.told("Runtime.exceptionThrown")] + [e for e in page.told("Log.entryAdded") if e["entry"]["level"] == "error"]
    errors += [e for e in page.told("Runtime.consoleAPICalled") if e["type"] in ("error", "warning")]
    assert not errors, errors
    hosts = {urlparse(e["request"]["url"]).netloc for e in page.told("Network.requestWillBeSent")
             if not e["request"]["url"].startswith(("data:", "about:"))}
    assert hosts == {f"127.0.0.1:{server.port}"}


def sent(page):
    return [json.loads(e["request"]["postData"]) for e in page.told("Network.requestWillBeSent") if e["request"]["method"] == "POST"]


@pytest.mark.parametrize("look, width, dark", [("light", 1000, False), ("dark", 1000, True), ("narrow", 360, False)])
def test_a_conversation(browser, server, look, width, dark):
    page = chromium.Page(browser, server.url, width=width, dark=dark)
    page.wait("document.getElementById('model').options.length === 2")
    shoot(page, f"{look} empty")
    answer(page, "What does the fox do?")
    assert said(page) == [["user", "What does the fox do?"], ["assistant", "The fox jumps."]]
    assert page.js("document.querySelector('.assistant .said code').textContent") == "jumps"
    assert page.js("document.querySelector('details.thought div').textContent") == "Let me see."
    assert re.fullmatch(r"\d+ tokens read, 6 written, [\d.]+ a second", page.js("document.getElementById('note').textContent"))
    answer(page, "<b>And</b> now?\n\n```\nx = 1\n```")
    assert [who for who, _ in said(page)] == ["user", "assistant"] * 2 and said(page)[2][1].startswith("<b>And</b> now?")
    first, second = (one["messages"] for one in sent(page))
    assert second[:2] == [*first, {"role": "assistant", "content": "The fox `jumps`."}] and len(second) == 3
    # What is behind everything has the scheme's colour, and nothing sticks out at the side.
    back = page.js("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) < 150) == dark
    assert page.js("document.documentElement.scrollWidth") <= width
    page.js("document.querySelector('details.thought').open = true")
    shoot(page, f"{look} answered")
    page.js("document.getElementById('theme').click()")
    assert page.js("getComputedStyle(document.body).backgroundColor") != back
    page.js("document.getElementById('clear').click()")
    assert said(page) == []
    answer(page, "Anew")
    assert sent(page)[-1]["messages"] == [{"role": "user", "content": "Anew"}]
    check(page, server)


def test_stopping(browser, server):
    page = chromium.Page(browser, server.url)
    page.wait("document.getElementById('model').options.length === 2")
    page.js("document.getElementById('model').value = 'writer'")
    page.js(OBSERVE)
    ask(page, "Go on")
    page.wait("seen.length > 20")
    shoot(page, "writing")
    assert page.js("!document.getElementById('stop').hidden && document.getElementById('send').disabled")
    page.js("document.getElementById('stop').click()")
    page.wait(ANSWERED)
    assert page.js("document.getElementById('note').textContent") == "stopped" and page.js("document.getElementById('stop').hidden")
    was = page.js("seen.length")
    sizes = [n for n in page.js("seen") if n]
    assert sizes == sorted(sizes) and len(set(sizes)) > 10, "it grows as it comes"
    time.sleep(0.3)
    assert page.js("seen.length") == was, "nothing comes any more"
    ask(page, "More")
    page.wait(f"document.querySelectorAll('.turn').length === 4 && seen.length > {was + 20}")
    roles = [(m["role"], bool(m["content"])) for m in sent(page)[-1]["messages"]]
    assert roles == [("user", True), ("assistant", True), ("user", True)]
    # "New" while an answer comes: nothing of it gets into the next conversation.
    page.js("document.getElementById('clear').click()")
    page.wait(ANSWERED)
    page.js("document.getElementById('model').value = 'parrot'")
    answer(page, "Hello")
    assert sent(page)[-1]["messages"] == [{"role": "user", "content": "Hello"}] and len(said(page)) == 2
    check(page, server)
    until = time.monotonic() + 10
    while server.metric('cotan_sequences_running{model="writer"}') and time.monotonic() < until:
        time.sleep(0.05)
    assert server.metric('cotan_sequences_running{model="writer"}') == 0


def test_keys(browser, tmp_path):
    shutil.copytree(make_parrot(tmp_path / "parrot"), tmp_path / "again")
    server = Server(tmp_path / "again", "--api-key", "secret")
    try:
        page = chromium.Page(browser, server.url)
        page.wait("document.getElementById('note').textContent !== ''")
        assert "key" in page.js("document.getElementById('note').textContent").lower()
        page.wait("document.getElementById('settings').open")
        shoot(page, "keys")
        page.js("document.getElementById('key').focus()")
        page.type("secret")
        page.js("document.getElementById('key').blur()")
        page.wait("document.getElementById('model').options.length === 1")
        answer(page, "Hello")
        assert said(page)[1] == ["assistant", "The fox jumps."]
    finally:
        server.stop()


def test_models_that_do_not_chat(browser, tmp_path):
    """The page says so before anything is sent; one without a template goes on with each text, an encoder is refused in words."""
    note = "document.getElementById('note').textContent"
    bare = make_model(tmp_path / "bare", template=None)
    s = Server(make_parrot(tmp_path / "parrot"), bare, make_model(tmp_path / "reads", name="bert", template=None), "--context", 64)
    try:
        page = chromium.Page(browser, s.url)
        page.wait("document.getElementById('model').options.length === 3")
        said_of = {}
        for name in ("bare", "reads", "parrot", "bare"):
            page.js(f"document.getElementById('model').value = '{name}'; document.getElementById('model').dispatchEvent(new Event('change'))")
            said_of[name] = page.js(note)
        assert said_of == {"bare": "bare has no chat template: it does not answer, but goes on with each text by itself",
                           "reads": "reads does not write: it makes vectors of texts", "parrot": ""}
        page.js("document.getElementById('heat').value = 0")
        answer(page, "the quick")
        answer(page, "brown")
        assert [one["prompt"] for one in sent(page)] == ["the quick", "brown"]
        for text, turn in zip(("the quick", "brown"), said(page)[1::2]):
            whole = s.say("/v1/completions", prompt=text, model="bare", temperature=0, max_tokens=512)["choices"][0]["text"]
            assert turn == ["assistant", whole.strip()]
        check(page, s)
        page.js("document.getElementById('clear').click()")
        assert page.js(note) == said_of["bare"]
        page.js("document.getElementById('model').value = 'reads'")
        answer(page, "fox")
        assert page.js("document.querySelector('.wrong').textContent") == "reads does not write: it is an encoder (bert)"
        page.js("document.getElementById('model').value = 'parrot'")
        answer(page, "fox " * 100)
        assert re.fullmatch(r"messages: \d+ tokens do not fit into the context of parrot: 64; “New” forgets the conversation",
                            page.js("[...document.querySelectorAll('.wrong')].at(-1).textContent"))
    finally:
        s.stop()
