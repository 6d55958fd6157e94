"""cotan serve under strain: clients that close a half, hold connections idle, send much at once; a model's file that is cut short."""
import gzip
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.serving import ENVIRONMENT, Server, make_model

CHAT, OLD = "/v1/chat/completions", "/v1/completions"
ASK = {"prompt": "the quick brown fox", "max_tokens": 300, "temperature": 0, "logit_bias": {"0": -100, "2": -100}}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("strain") / "small", context=8192)


@pytest.fixture(scope="module")
def server(model):
    s = Server(model, "--context", 1024, "--body-memory", "20MB")
    yield s
    assert s.stop() == 0, s.errors


def raw(port, body, path=OLD):
    data = json.dumps(body).encode()
    c = socket.create_connection(("127.0.0.1", port), timeout=60)
    c.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (path.encode(), len(data)) + data)
    return c


def read_all(c):
    parts = []
    while part := c.recv(1 << 16):
        parts.append(part)
    c.close()
    return b"".join(parts)


@pytest.mark.parametrize("more", [{}, {"stream": True}], ids=["whole", "stream"])
def test_a_client_that_closed_its_sending_half_is_answered(server, more):
    whole = server.say(OLD, **ASK)["choices"][0]["text"]
    c = raw(server.port, ASK | more)
    c.shutdown(socket.SHUT_WR)
    reply = read_all(c)
    heads = reply.split(b"\r\n\r\n")
    assert [h.split(b"\r\n")[0] for h in heads if h.startswith(b"HTTP/")][-1] == b"HTTP/1.1 200 OK"
    if more:
        assert reply.rstrip(b"\r\n0").endswith(b"data: [DONE]")
    else:
        assert json.loads(heads[-1])["choices"][0]["text"] == whole


def test_a_client_that_is_gone_ends_its_text(server):
    before = server.metric("cotan_sequences_cancelled_total") or 0
    c = raw(server.port, ASK | {"max_tokens": 1000})
    time.sleep(0.3)
    c.close()
    deadline = time.monotonic() + 20
    names = [line.split()[0] for line in server.ask("/metrics")[1].splitlines() if "cancel" in line and not line.startswith("#")]
    while sum(server.metric(name) for name in names) <= before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert sum(server.metric(name) for name in names) > before


def test_idle_connections_lock_nobody_out(server):
    """More of them than there may be: the oldest make room, and who comes is answered at once."""
    idle = []
    try:
        for _ in range(560):
            c = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            idle.append(c)
        began = time.monotonic()
        assert server.say(OLD, prompt="fox", max_tokens=2, temperature=0)["choices"] and time.monotonic() - began < 10
        idle[0].settimeout(10)
        assert idle[0].recv(1) == b""  # it was the first to go
    finally:
        for c in idle:
            c.close()


def test_bodies_together_are_bounded(server):
    """Two bodies of 15 MB take more than 20 MB: the one that comes second is asked to come again."""
    text = b'{"prompt": "' + b"x" * 15_000_000
    first = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    first.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (len(text) + 2) + text)
    time.sleep(0.5)
    try:
        status, said, headers = server.ask(OLD, text + b'"}')
        assert (status, said["error"]["message"], headers["Retry-After"]) == (
            503, "the requests that are being read take more than 20 MB: try again later", "1")
        assert server.ask(OLD, {"prompt": "fox", "max_tokens": 1})[0] == 200
    finally:
        first.close()
    deadline = time.monotonic() + 10
    while (status := server.ask(OLD, text + b'"}')[0]) == 503 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert status == 400  # it does not fit into the context


def resident(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS"))


def test_memory_of_refused_prompts_is_given_back(server):
    server.ask(OLD, {"prompt": "the quick brown fox " * 1000})
    before = resident(server)
    for _ in range(3):
        status, message = server.refused(OLD, {"prompt": "the quick brown fox " * 300_000})
        assert status == 400 and "do not fit into the context" in message
    assert resident(server) < before + 40e6


def test_memory_of_bodies_is_given_back(model):
    """Whatever thread read them, and though larger ones had been freed before."""
    bomb, s = gzip.compress(b'{"prompt": "' + bytes(17 << 20)), Server(model, "--context", 256)
    try:
        def send():
            for _ in range(4):
                status, said, _ = s.ask(OLD, bomb, headers={"Content-Encoding": "gzip"})
                assert (status, said["error"]["message"]) in ((413, "the body is larger than 16 MiB"), (
                    503, "the requests that are being read take more than 67 MB: try again later"))
        s.say(OLD, prompt="fox", max_tokens=1)
        before = resident(s)
        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(send) for _ in range(8)]:
                done.result()
        assert resident(s) < before + 20e6
    finally:
        assert s.stop() == 0, s.errors


def test_a_file_that_is_cut_short(model, tmp_path):
    """Its model answers with a sentence from then on; the other goes on as before, and the process ends as it is told."""
    folder = tmp_path / "cut"
    shutil.copytree(model, folder)
    s = Server(folder, model)
    try:
        ask = ASK | {"max_tokens": 8}
        assert s.say(OLD, **ask, model="cut")["choices"][0]["text"] == s.say(OLD, **ask, model="small")["choices"][0]["text"]
        os.truncate(folder / "model.safetensors", 4096)
        why = "the model's file was truncated while it was served: restore the file and restart the server"
        assert s.refused(OLD, ask | {"model": "cut"}) == (500, why)
        assert s.refused(CHAT, {"messages": [{"role": "user", "content": "x"}], "model": "cut"}) == (500, why)
        assert s.say(OLD, **ask, model="small")["choices"][0]["text"]
    finally:
        assert s.stop() == 0, s.errors


def test_nothing_is_compiled_later(model):
    """Where kernels are compiled, all are there when it listens: of echoed log-probabilities and of vectors, too."""
    s = Server(model, "--context", 256, env={"COTAN_CC": os.environ.get("COTAN_CC", "cc")})
    try:
        names = [line.split()[0] for line in s.ask("/metrics")[1].splitlines() if line.startswith("cotan_kernels")]
        before = {name: s.metric(name) for name in names}
        for n in (1, 2, 7, 40):
            s.say(OLD, prompt=[40] * n, max_tokens=2, echo=True, logprobs=2)
            s.say("/v1/embeddings", input=["fox " * n, "dog"])
        assert names and {name: s.metric(name) for name in names} == before
    finally:
        assert s.stop() == 0, s.errors


def test_hostile_clients(model):
    """Requests of all kinds that bench/strain.py draws, beside fixed ones; by hand it runs for ten minutes, and looks at memory."""
    root = Path(__file__).parents[2]
    build, seconds, clients = os.environ.get("COTAN_BUILD", root / "build"), *(("60", "64") if os.environ.get("COTAN_TEST_ALL") else ("3", "8"))
    done = subprocess.run([sys.executable, root / "bench/strain.py", build, model, seconds, clients, "--context", "1024"], capture_output=True, text=True,
                          timeout=300, env=os.environ | ENVIRONMENT)
    assert done.returncode == 0 and "0 answers differ, 0 replies are wrong" in done.stdout, done.stdout + done.stderr
    assert done.stderr == ""
