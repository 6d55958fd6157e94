"""A run whose tokens are bytes or characters, as cotan train makes it by itself, is a model like any other: it writes, is judged, gives vectors
and is served; and so is one of a time when runs had no tokenizer.json."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import cotan as ct
import pytest
from support.program import command
from support.serving import Server

ROOT = Path(__file__).resolve().parents[2]
COTAN = command("cotan")
SIZES = ["--layers", 1, "--heads", 2, "--width", 32, "--context", 16, "--batch", 2, "--steps", 12, "--eval-batches", 2, "--patience", 9]
TEXT = "naïve → cafés\n" + (ROOT / "tests/e2e/few_letters.txt").read_text()


def cotan(*words, fails=0, given=""):
    done = subprocess.run([*COTAN, *map(str, words)], capture_output=True, timeout=300, input=given.encode(), env=os.environ | {"COTAN_CC": "none"})
    assert done.returncode == fails, done.stderr
    return (done.stderr if fails else done.stdout).decode(errors="replace")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module", params=["bytes", "chars"])
def run(request, text, tmp_path_factory):
    out = tmp_path_factory.mktemp(request.param) / "run"
    cotan("train", "--data", text, "--tokenizer", request.param, *SIZES, "--out", out)
    return request.param, out


def ids(kind, text):
    return list(text.encode()) if kind == "bytes" else [sorted(set(TEXT)).index(c) for c in text]


def old(run, to):
    shutil.copytree(run, to)
    for path in to.rglob("tokenizer*.json"):
        path.unlink()
    return to


def test_its_tokenizer(run, tmp_path):
    kind, out = run
    for folder in (out, out / "best", old(out, tmp_path / "old"), tmp_path / "old/best"):
        tokenizer = ct.lm.Tokenizer(folder)
        assert list(tokenizer.encode(TEXT)) == ids(kind, TEXT) and tokenizer.decode(ids(kind, TEXT)) == TEXT
        assert len(tokenizer) == (256 if kind == "bytes" else len(set(TEXT)))
    assert not list((tmp_path / "old").rglob("tokenizer.json"))


def test_it_is_a_model(run, text, tmp_path):
    kind, out = run
    said = []
    for folder in (out, old(out, tmp_path / "old")):
        wrote = cotan("run", folder, "--prompt", "cafés", "--max-tokens", 8, "--temperature", 0)
        assert wrote.startswith("cafés") and len(wrote) > 5 + 2
        assert cotan("chat", folder, "--max-tokens", 8, "--temperature", 0, given="cafés") == wrote
        judged = json.loads(cotan("eval", folder, "--perplexity", text, "--json"))["perplexity"][0]
        vectors = cotan("embed", folder, "cafés", "a")
        assert judged["tokens"] == len(ids(kind, TEXT)) - 1 and judged["bytes"] == len(TEXT.encode()) - 1 and len(vectors.splitlines()) == 2
        said.append((wrote, judged | {"file": ""}, vectors))
    assert said[0] == said[1]
    # Each token behind those before it in its window, of which the first has nothing before it.
    lm = ct.lm.load(out)
    tokens = ids(kind, TEXT)
    got = lm.perplexity(TEXT)
    assert got.tokens == len(tokens) - 1 and abs(got.token_perplexity - judged["token_perplexity"]) < 1e-9
    short = TEXT[:5]
    if kind == "chars":
        alone = lm.loglikelihood([(short[:i], short[i]) for i in range(1, 5)])
        assert abs(sum(one[0] for one in alone) - lm.perplexity(short).log_likelihood) < 1e-4
        with pytest.raises(ValueError, match="6 of the text's 11 bytes are characters that the tokenizer does not have, and would not be scored"):
            lm.perplexity(short.encode()[:5].decode() + "\u3042\u3044")


def test_it_is_served(run):
    kind, out = run
    server = Server(out)
    try:
        said = server.say("/v1/completions", prompt="cafés", max_tokens=8, temperature=0)
        assert said["usage"] == {"prompt_tokens": len(ids(kind, "cafés")), "completion_tokens": 8, "total_tokens": len(ids(kind, "cafés")) + 8} | {
            k: v for k, v in said["usage"].items() if k.endswith("details")}
        assert len(server.say("/v1/embeddings", input="cafés")["data"][0]["embedding"]) == 32
    finally:
        server.stop()


def test_on_from_it(run, text, tmp_path):
    kind, out = run
    for folder in (out, old(out, tmp_path / "old")):
        to = tmp_path / f"on from {folder.name}"
        cotan("train", "--data", text, "--from", folder, "--steps", 2, "--batch", 2, "--eval-batches", 2, "--out", to)
        assert (to / "tokenizer.json").read_bytes() == (out / "tokenizer.json").read_bytes()
        assert cotan("run", to, "--prompt", "a", "--max-tokens", 2).startswith("a")


def test_what_config_says_wrong(run, tmp_path):
    kind, out = run
    folder = old(out, tmp_path / "old")
    config = json.loads((folder / "config.json").read_text())
    for change, message in [({"tokenizer": "words"}, 'key "tokenizer" is "words", not one of: bytes, chars'),
                            ({"tokenizer": "chars", "vocabulary": "ba"}, "vocabulary: U+0061 follows U+0062, but characters must ascend"),
                            ({"tokenizer": None}, None)]:
        (folder / "config.json").write_text(json.dumps(config | change))
        if message is None:
            del config["tokenizer"]
            (folder / "config.json").write_text(json.dumps(config))
            message = f"{folder}: the folder has no tokenizer: neither tokenizer.json, nor tokenizer.model, nor a .tiktoken file"
        assert cotan("run", folder, "--prompt", "a", fails=1).splitlines()[0].endswith(message)
