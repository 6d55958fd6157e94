"""While kernels are compiled, a line says how many of how many: redrawn on a terminal, now and then in a log, and never where
nothing is compiled. The compiler here takes its time, and each test has a cache of its own, empty at first."""
import os
import pty
import re
import signal
import subprocess

import pytest

from support.program import command
from support.serving import make_model

COTAN = command("cotan")
LINE = rb"\rcompiling kernels: (\d+) of (\d+)\x1b\[K"
CLEARED = b"\r\x1b[K"
ALL = rb"(?:" + LINE + rb")+" + re.escape(CLEARED)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "small", template=None)


def slow_compiler(folder, line):
    compiler = folder / "cc"
    compiler.write_text(f"#!/bin/sh\n{line}\nexec cc \"$@\" -O0\n")
    compiler.chmod(0o755)
    return {"COTAN_CC": str(compiler), "COTAN_CACHE_DIR": str(folder / "cache"), "COTAN_COMPILE": "wait", "COTAN_THREADS": "2"}


@pytest.fixture(scope="module", autouse=True)
def logged(model, tmp_path_factory):
    """A command with its standard error in a pipe; its compiler waits for the file `go`. It starts now, for it takes ten seconds."""
    folder = tmp_path_factory.mktemp("logged")
    env = slow_compiler(folder, f"until [ -e {folder}/go ]; do sleep 0.05; done")
    process = subprocess.Popen([*COTAN, "run", model, "--prompt", "the", "--max-tokens", "3", "--temperature", "0"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | env)
    yield process, folder / "go"
    (folder / "go").touch()
    process.wait(60)


def on_terminal(words, env, until=None):
    """What a terminal is sent; a command that serves is ended when `until` appeared."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*COTAN, *map(str, words)], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=os.environ | env)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
            if until and until in shown and shown.endswith(b"\n"):
                process.send_signal(signal.SIGINT)
                until = None
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0, shown
    return shown


def counts(shown):
    """The pairs that were drawn: of a wait that grows, and whose kernels come."""
    pairs = [(int(done), int(of)) for done, of in re.findall(LINE, shown)]
    assert pairs and pairs[0][0] == 0 and pairs == sorted(set(pairs)) and all(done < of for done, of in pairs), pairs
    return pairs


RUN = ["run", "--prompt", "the quick", "--max-tokens", 8, "--temperature", 0]
OTHERS = [["embed", "fox"], ["eval", "--perplexity", "TEXT"]] if os.environ.get("COTAN_TEST_ALL") == "1" else []


@pytest.mark.parametrize("words", [RUN, *OTHERS], ids=lambda words: words[0])
def test_on_a_terminal(model, tmp_path, words):
    """The line comes before what is written, and nothing is left of it."""
    (tmp_path / "text").write_text("the quick brown fox")
    words = [tmp_path / "text" if word == "TEXT" else word for word in words]
    env = slow_compiler(tmp_path, "sleep 0.2")
    shown = on_terminal([words[0], model, *words[1:]], env)
    counts(shown)
    again = on_terminal([words[0], model, *words[1:]], env)
    assert again.count(b"\r\n") and not re.search(LINE, again)
    assert re.sub(ALL, b"", shown) == again


def test_a_server_says_it_before_it_listens(model, tmp_path):
    env = slow_compiler(tmp_path, ":")
    words = ["serve", model, "--port", 0, "--context", 64, "--max-sequences", 1]
    shown = on_terminal(words, env, b"listening")
    assert re.fullmatch(rb"(?:" + ALL + rb")+listening on http://127.0.0.1:\d+\r\n", shown)
    counts(shown)
    assert re.fullmatch(rb"listening on http://127.0.0.1:\d+\r\n", on_terminal(words, env, b"listening"))


def test_a_run_says_it_before_its_first_step(tmp_path):
    (tmp_path / "text").write_text("the quick brown fox jumps over the lazy dog. " * 30)
    env = slow_compiler(tmp_path, "sleep 0.2")
    words = ["train", "--data", tmp_path / "text", "--layers", 1, "--heads", 2, "--width", 16, "--context", 16, "--batch", 4, "--steps", 1,
             "--eval-batches", 1, "--out"]
    shown = on_terminal([*words, tmp_path / "first"], env)
    begin, rest = shown.split(b"preparing the first step ...")
    assert re.match(rb"(?:" + ALL + rb")+after 1 step it writes:\r\n", rest) and not re.search(LINE, begin)
    counts(rest)
    again = on_terminal([*words, tmp_path / "second"], env)
    assert b"preparing the first step ...\r\nafter 1 step it writes:\r\n" in again and not re.search(LINE, again)


def test_in_a_log(logged):
    """A line every ten seconds."""
    process, go = logged
    line = process.stderr.readline()
    go.touch()
    out, err = process.communicate(timeout=60)
    assert re.fullmatch(r"compiling kernels: 0 of \d+\n", line) and set(err.splitlines(True)) <= {line}, err
    assert process.returncode == 0 and out.startswith("the")
