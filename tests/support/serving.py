"""cotan serve: a small model with a tokenizer and a template of its own, and a server of it."""
import http.client
import json
import os
import signal
import subprocess
import threading

import numpy as np
from support import language_models as lm
from support.program import command

TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}"
            "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor %}</{{ m.role }}>{% endfor %}"
            "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")
WORDS = "the quick brown fox jumps over the lazy dog. " * 50
ENVIRONMENT = {"COTAN_CC": "none"}  # kernels are interpreted: nothing is compiled for models as small as these


def make_model(folder, name="llama2", template=TEMPLATE, context=512, seed=None):
    """A model's folder: one of language_models.npz with random weights, and a BPE of 300 tokens."""
    text = folder.parent / "text.txt"
    text.write_text(WORDS)
    subprocess.run([*command("cotan"), "tokenize", text, "--train", "bpe:300", "--out", folder], check=True, capture_output=True)
    recorded = np.load(lm.RECORDED)
    config, shapes = (json.loads(str(recorded[f"{name}.{what}"])) for what in ("config", "shapes"))
    old = config["vocab_size"]
    config["vocab_size"] = 300
    if name == "llama2":
        config["max_position_embeddings"] = context
    shapes = {k: [300 if n == old else n for n in s] for k, s in shapes.items()}
    lm.save(folder, config, shapes)
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return folder


class Server:
    """A server that is there: `wait=False` does not wait until its models are."""

    def __init__(self, *args, wait=True, env=None):
        self.process = subprocess.Popen([*command("cotan"), "serve", *map(str, args), *([] if "--port" in args else ["--port", "0"])], env=os.environ | ENVIRONMENT | (env or {}),
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.key = None
        self.errors = []
        self.reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True)
        self.reader.start()
        if wait:
            line = self.process.stdout.readline()
            assert line.startswith("listening on http://127.0.0.1:"), (line, self.stop(signal.SIGKILL), self.errors)
            self.url = line.split()[-1]
            self.port = int(line.rsplit(":", 1)[1])

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, path, body=None, method=None, headers=None):
        """(status, what the reply's JSON says or its text, headers)"""
        c = self.connect()
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        own = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        c.request(method or ("GET" if body is None else "POST"), path, data, own | (headers or {}))
        reply = c.getresponse()
        text = reply.read().decode()
        c.close()
        is_json = reply.headers.get("Content-Type") == "application/json"
        return reply.status, json.loads(text) if is_json else text, reply.headers

    def say(self, path, **body):
        status, said, _ = self.ask(path, body)
        assert status == 200, said
        return said

    def refused(self, path, body, **options):
        """(status, message)"""
        status, said, _ = self.ask(path, body, **options)
        error = said["error"]
        return status, error if isinstance(error, str) else error["message"]

    def events(self, path, **body):
        """The data of a stream's server-sent events, in their order."""
        status, said, headers = self.ask(path, body | {"stream": True})
        assert status == 200 and headers["Content-Type"] == "text/event-stream", said
        lines = [line[6:] for line in said.split("\n") if line.startswith("data: ")]
        return [json.loads(line) if line != "[DONE]" else line for line in lines]

    def metric(self, name):
        for line in self.ask("/metrics")[1].split("\n"):
            if line.startswith(name):
                return float(line.rsplit(" ", 1)[1])
        return 0

    def stop(self, how=signal.SIGTERM):
        """The exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(timeout=30)
        self.reader.join(10)
        return status
