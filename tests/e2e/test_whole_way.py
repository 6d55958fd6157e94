"""README's four commands, as they stand there: a small model with a tokenizer of its own is trained, looked at, served and asked."""
import json
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

from support.program import command

ROOT = Path(__file__).parents[2]
COTAN = command("cotan")


def commands():
    block = re.search(r"in four commands.*?```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    return [line.split("  #")[0].strip() for line in block.splitlines()]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def shell(line, folder):
    """A line of README, by this build's program."""
    done = subprocess.run(["bash", "-c", line.replace("build/cotan", " ".join(map(str, COTAN)))], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_four_commands(tmp_path):
    train, info, serve, ask = commands()
    if not os.environ.get("COTAN_TEST_ALL"):
        train = train.replace(" --steps 200 ", " --steps 20 ")
    texts = sorted((ROOT / "docs").glob("*.md"))
    (tmp_path / "book.txt").write_text("".join(path.read_text() for path in texts)[:300_000])
    shell(train, tmp_path)
    assert shell(info, tmp_path).startswith("model: llama, 2 layers, ")
    port = str(free_port())
    words = [*COTAN, *serve.removesuffix(" &").split()[1:], "--port", port]
    server = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline() == f"listening on http://127.0.0.1:{port}\n"
        deadline = time.monotonic() + 300
        while True:  # it is answered with 503 until the model is there
            answer = json.loads(shell(ask.replace("8080", port).replace("curl", "curl -s"), tmp_path))
            if "error" not in answer or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        assert answer["model"] == "poet" and answer["choices"][0]["text"] and answer["usage"]["completion_tokens"] <= 20, answer
        server.send_signal(signal.SIGINT)
        assert server.wait(60) in (0, 130)
    finally:
        server.kill()
