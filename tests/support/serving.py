"""cotan serve: a small model with a tokenizer and a template of its own, and a server of it."""
import http.client
import json
import os
import signal
import subprocess
import threading

import numpy as np
from support import language_models as lm
from support import safetensors
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
    config |= {"vocab_size": 300, "eos_token_id": 0}
    if name == "llama2":
        config["max_position_embeddings"] = context
    shapes = {k: [300 if n == old else n for n in s] for k, s in shapes.items()}
    lm.save(folder, config, shapes)
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return folder


# What a parrot says behind <assistant>, and behind <caller>, which its template writes where there are tools.
ANSWER = ["<think>", "Let me ", "see.", "</think>", "The fox ", "`jumps`."]
CALL = ["I look. ", "<tool_call>", '{"name": "find", "arguments": ', '{"what": "fox"}}', "</tool_call>"]
PARROT = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.tool_calls %}"
          "{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endif %}{% endfor %}"
          "{% if enable_thinking is defined and not enable_thinking %}<plain>{% elif tools %}<caller>{% else %}<assistant>{% endif %}"
          "{# <think></think> #}")


def make_parrot(folder):
    """A model that says the same always: each token has one that follows it, so each stands once in what it says."""
    make_model(folder, template=PARROT)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    ids = {}

    def token(text):
        if text not in ids:
            ids[text] = 300 + len(ids)
            tokenizer["added_tokens"].append({"id": ids[text], "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                                              "normalized": False, "special": text.startswith("<")})
        return ids[text]
    chains = [["<assistant>", *ANSWER], ["<caller>", *CALL], ["<plain>", "Straight ", "on."]]
    follows = {}
    for chain in chains:
        chain = [token(text) for text in chain] + [0]
        follows |= dict(zip(chain, chain[1:]))
    file.write_text(json.dumps(tokenizer))
    width = 336
    config = json.loads((folder / "config.json").read_text())
    config |= dict(vocab_size=width, hidden_size=width, head_dim=width // 4, num_hidden_layers=1, intermediate_size=8, eos_token_id=0)
    (folder / "config.json").write_text(json.dumps(config))
    head = np.zeros((width, width), np.float32)
    for now, then in follows.items():
        head[then, now] = 1
    zeros = {f"model.layers.0.{name}.weight": np.zeros(shape, np.float32) for name, shape in [
        ("self_attn.q_proj", (width, width)), ("self_attn.k_proj", (width, width)), ("self_attn.v_proj", (width, width)),
        ("self_attn.o_proj", (width, width)), ("mlp.gate_proj", (8, width)), ("mlp.up_proj", (8, width)), ("mlp.down_proj", (width, 8))]}
    ones = {name: np.ones(width, np.float32) for name in ("model.norm.weight", "model.layers.0.input_layernorm.weight",
                                                            "model.layers.0.post_attention_layernorm.weight")}
    safetensors.write(folder / "model.safetensors", zeros | ones | {"model.embed_tokens.weight": np.eye(width, dtype=np.float32),
                                                                    "lm_head.weight": head})
    return folder


class Server:
    """A server that is there: `wait=False` does not wait until its models are. `program`: another one than the build's."""

    def __init__(self, *args, wait=True, env=None, program=None):
        self.process = subprocess.Popen([*(program or command("cotan")), "serve", *map(str, args), *([] if "--port" in args else ["--port", "0"])], env=os.environ | ENVIRONMENT | (env or {}),
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
