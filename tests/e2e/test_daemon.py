"""examples/06_daemon.c, a server that trains: in a host program of every kind the same bits, and nothing lost."""
import os
import re
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build"))
DAEMON = BUILD / "examples/06_daemon"
SANITIZED = "COTAN_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()


class Server:
    """The daemon, and one client of it."""

    def __init__(self, folder, command, env=None, **options):
        path = folder / "socket"
        self.process = subprocess.Popen([*map(str, command), str(path)], env=env, text=True,
                                        stderr=subprocess.PIPE, stdout=subprocess.PIPE, **options)
        self.client = socket.socket(socket.AF_UNIX)
        for _ in range(600):
            try:
                self.client.connect(str(path))
                return
            except OSError:
                assert self.process.poll() is None, self.process.communicate()
                time.sleep(0.05)
        raise AssertionError("the daemon does not listen")

    def say(self, command):
        self.client.sendall(f"{command}\n".encode())
        return self.client.recv(1000).decode().strip()

    def await_step(self, step):
        for _ in range(1200):
            answer = self.say("status")
            if answer.startswith(f"step {step} of"):
                return answer
            assert "failed" not in answer, answer
            time.sleep(0.05)
        raise AssertionError(answer)

    def train(self, step):
        self.say(f"train {step}")
        return weights(self.await_step(step))

    def quit(self):
        self.say("quit")
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def weights(answer):
    return re.search(r"weights ([0-9a-f]{8})", answer)[1]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The weights after 20 and 60 steps."""
    server = Server(tmp_path_factory.mktemp("plain"), [DAEMON])
    found = {20: server.train(20), 60: server.train(60)}
    assert server.quit() == (0, "", "") and found[20] != found[60]
    return found


@pytest.fixture(scope="module")
def comma(tmp_path_factory):
    """The environment of a locale with a decimal comma."""
    folder = tmp_path_factory.mktemp("locale")
    subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", folder / "de_DE.UTF-8"],
                   capture_output=True)
    return {"LC_ALL": "de_DE.UTF-8", "LOCPATH": str(folder)}


@pytest.fixture(scope="module")
def flushing(tmp_path_factory):
    """The daemon as a program that is linked with -ffast-math: it flushes subnormal numbers to zero."""
    folder = tmp_path_factory.mktemp("flushing")
    sanitize = ["-fsanitize=address,undefined"] if SANITIZED else []
    subprocess.run(["cc", *sanitize, "-c", ROOT / "examples/06_daemon.c", "-o", folder / "daemon.o",
                    "-I", ROOT / "include", "-I", BUILD / "derived"], check=True)
    subprocess.run(["cc", *sanitize, "-ffast-math", folder / "daemon.o", "-o", folder / "daemon",
                    f"-L{BUILD}", "-lcotan", f"-Wl,-rpath,{BUILD}", "-pthread"], check=True)
    if os.uname().machine == "x86_64":
        names = subprocess.run(["nm", folder / "daemon"], text=True, capture_output=True).stdout
        assert "set_fast_math" in names
    return folder / "daemon"


def without_folders():
    """No HOME, and with it no cache."""
    return {k: v for k, v in os.environ.items()
            if k not in ("HOME", "XDG_CACHE_HOME", "COTAN_CACHE_DIR")}


def ignore_children():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def test_cancelled_and_continued(plain, tmp_path):
    server = Server(tmp_path, [DAEMON])
    server.train(20)
    for _ in range(3):
        server.say("train 1000000")
        time.sleep(0.05)
        server.say("stop")
        for _ in range(600):
            answer = server.say("status")
            step, target = map(int, re.match(r"step (\d+) of (\d+),", answer).groups())
            if step == target:
                break
            time.sleep(0.02)
    assert 20 < step < 1000000
    found = weights(answer)
    assert server.quit() == (0, "", "")
    again = Server(tmp_path, [DAEMON])
    assert again.train(60) == plain[60]
    assert again.train(step) == found  # undisturbed
    assert again.quit() == (0, "", "")


def connected(server):
    client = socket.socket(socket.AF_UNIX)
    client.connect(server.client.getpeername())
    return client


def answers(client, n):
    """The next n lines."""
    got = ""
    client.settimeout(20)
    while got.count("\n") < n:
        assert (part := client.recv(4096).decode()), got
        got += part
    return got.splitlines()


def test_lines_are_commands_however_they_come(tmp_path):
    server = Server(tmp_path, [DAEMON])
    server.client.sendall(b"train 3\r\nstatus\nsta")
    first, second = answers(server.client, 2)
    assert first.startswith("step 0 of 3, ") and re.match(r"step \d of 3, ", second)
    server.client.sendall(b"tus\n")
    assert re.match(r"step \d of 3, ", answers(server.client, 1)[0])
    other = connected(server)
    other.sendall(b"x" * 100)  # no command is as long
    assert other.recv(1) == b""
    assert server.quit() == (0, "", "")


def test_an_unknown_command_is_answered_with_those_that_are(tmp_path):
    server = Server(tmp_path, [DAEMON])
    for command in ("halp", "", "statu", "train", "train ", "train x", "train -1", "train 0", "train 5x", "train  5",
                    "train 1000000001", "train 99999999999999999999"):
        assert server.say(command) == f'unknown: "{command}"; commands are train N (1 to 1000000000), status, stop and quit'
    assert server.say("status").startswith("step 0 of 0, ")
    assert server.quit() == (0, "", "")


def test_places_for_clients_are_not_lost(tmp_path):
    """While the server may open no descriptor, and where more come than it has places for."""
    server = Server(tmp_path, [DAEMON])
    server.train(1)
    open_now = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (open_now, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    refused = connected(server)
    time.sleep(0.3)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    clients = [refused, *(connected(server) for _ in range(7))]  # with the server's own eight, one too many
    clients[7].sendall(b"status\n")
    for client in clients[:7]:
        client.sendall(b"status\n")
        assert answers(client, 1)[0].startswith("step 1 of 1, ")
    clients[0].close()
    assert answers(clients[7], 1)[0].startswith("step 1 of 1, ")
    assert server.quit() == (0, "", "")


def test_what_the_library_says_goes_to_the_log(tmp_path):
    server = Server(tmp_path, [DAEMON], os.environ | {"COTAN_EXPLAIN": "1"})
    server.train(3)
    assert re.search(r", said: examples/06_daemon.c:\d+: plan \d+ made in", server.say("status"))
    assert server.quit() == (0, "", "")


def test_a_failure_is_said_and_the_server_goes_on(tmp_path):
    server = Server(tmp_path, [DAEMON], os.environ | {"COTAN_DEVICE": "nonsense"})
    server.say("train 5")
    for _ in range(200):
        answer = server.say("status")
        if "failed" in answer:
            break
        time.sleep(0.02)
    assert 'there is no device "nonsense"' in answer
    assert server.quit()[0] == 0


def test_comma_locale(plain, comma, tmp_path):
    server = Server(tmp_path, [DAEMON], without_folders() | comma)
    assert server.train(60) == plain[60]
    assert "loss 0,0" in server.say("status")  # the daemon's own text: the locale is in force
    assert server.quit() == (0, "", "")


def test_flush_to_zero(plain, flushing, tmp_path):
    server = Server(tmp_path, [flushing], without_folders())
    assert server.train(60) == plain[60]
    assert server.quit() == (0, "", "")


def test_children_ignored(plain, tmp_path):
    server = Server(tmp_path, [DAEMON], without_folders(), preexec_fn=ignore_children)
    assert server.train(60) == plain[60]
    assert server.quit() == (0, "", "")


def test_all_of_it_at_once(plain, comma, flushing, tmp_path):
    for threads in "13":
        server = Server(tmp_path, [flushing], without_folders() | comma | {"COTAN_THREADS": threads},
                        preexec_fn=ignore_children)
        assert server.train(60) == plain[60]
        assert server.quit() == (0, "", "")


@pytest.mark.skipif(not os.environ.get("COTAN_TEST_ALL"), reason="valgrind takes a quarter of a minute; make test-all and CI do")
def test_valgrind_finds_nothing_lost(plain, comma, tmp_path):
    if SANITIZED:
        pytest.skip("valgrind and the address sanitizer do not go together")
    env = without_folders() | comma | {"COTAN_THREADS": "2"}
    if os.uname().machine == "x86_64":  # valgrind knows no AVX-512
        compiler = tmp_path / "cc"
        compiler.write_text('#!/bin/sh\nexec cc "$@" -mno-avx512f\n')
        compiler.chmod(0o755)
        env["COTAN_CC"] = str(compiler)
    server = Server(tmp_path, ["valgrind", "--leak-check=full", "--show-leak-kinds=all",
                               "--errors-for-leak-kinds=all", "--error-exitcode=9", DAEMON], env,
                    preexec_fn=ignore_children)
    assert server.train(20) == plain[20]
    server.say("train 1000000")
    time.sleep(0.2)
    server.say("stop")
    status, _, report = server.quit()
    assert status == 0, report
    assert "in use at exit: 0 bytes in 0 blocks" in report and "ERROR SUMMARY: 0 errors" in report
