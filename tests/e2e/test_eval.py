"""cotan eval and cotan embed: what they print and write, beside the same from Python, and sentences for what is wrong."""
import json
import os
import subprocess

os.environ.setdefault("COTAN_CC", "none")  # models are small: to interpret their kernels takes less than to compile them

import cotan as ct  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from support import language_models as lm  # noqa: E402
from support import safetensors  # noqa: E402
from support.program import command  # noqa: E402

COTAN = command("cotan")
RECORDED = np.load(lm.RECORDED)
QUESTIONS = [{"query": "To be or not", "choices": ["to be", "a question", "x"], "gold": 1},
             {"ctx": "Now is", "endings": ["the winter", "a sun"], "label": "0"},
             {"question": "Which?", "choices": {"text": ["one", "three"], "label": ["A", "B"]}, "answerKey": "B"}]
LINES = ["to be", "or not to be", "that is", "the question"]


def make(folder, name, **options):
    lm.save(folder, json.loads(str(RECORDED[f"{name}.config"])), json.loads(str(RECORDED[f"{name}.shapes"])))
    lm.save_tokenizer(folder, **options)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make(tmp_path_factory.mktemp("llama"), "llama2")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("bert"), "bert", bos=True)


def cotan(*args, stdin="", fails=0):
    done = subprocess.run([*COTAN, *map(str, args)], input=stdin, capture_output=True, text=True)
    assert done.returncode == fails, done.stderr
    return done.stdout if not fails else done.stderr


def test_perplexity(model, tmp_path):
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    texts[0].write_text("Now is the winter of our discontent\n" * 6)
    texts[1].write_text("To be or not to be")
    said = json.loads(cotan("eval", model, "--perplexity", *texts, "--context", 64, "--stride", 32, "--json"))
    assert (said["model"], said["type"], said["context"], said["stride"], said["tasks"]) == (str(model), "llama", 64, 32, [])
    rows = said["perplexity"]
    assert [r["file"] for r in rows] == [*map(str, texts), "all"] and [r["tokens"] for r in rows] == [216, 18, 234]
    m = ct.lm.load(model)
    for path, row in zip(texts, rows):
        own = m.perplexity(path.read_text(), context=64, stride=32)
        for name in ("log_likelihood", "words", "bytes", "token_perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte"):
            assert row[name] == pytest.approx(getattr(own, name), rel=1e-12), name
    assert rows[2]["log_likelihood"] == pytest.approx(rows[0]["log_likelihood"] + rows[1]["log_likelihood"])
    table = cotan("eval", model, "--perplexity", *texts, "--context", 64, "--stride", 32).splitlines()
    assert table[0].split() == "perplexity of tokens bytes per token per word per byte bits/byte".split()
    assert [line.split()[1:3] for line in table[1:]] == [["216", "216"], ["18", "18"], ["234", "234"]]
    assert float(table[3].split()[3]) == pytest.approx(rows[2]["token_perplexity"], abs=1e-3)
    assert cotan("eval", model, "--perplexity", "-", "--context", 64, "--stride", 32, stdin=texts[1].read_text()).splitlines()[1].split()[1:] == \
        table[2].split()[1:]


def test_tasks(model, tmp_path):
    path = tmp_path / "task.jsonl"
    path.write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS))
    said = json.loads(cotan("eval", model, "--task", path, "--json"))["tasks"]
    assert said == [{"file": str(path), **ct.lm.load(model).multiple_choice(path)}] and said[0]["questions"] == 3
    one = json.loads(cotan("eval", model, "--task", path, "--limit", 1, "--json"))["tasks"][0]
    assert one["questions"] == 1 and one["acc_stderr"] is None
    table = cotan("eval", model, "--task", path).splitlines()
    assert table[0].split() == ["choices", "of", "questions", "acc", "acc_norm", "acc_bytes"]
    assert table[1].split()[1:5] == ["3", f"{said[0]['acc']:.4f}", "+-", f"{said[0]['acc_stderr']:.4f}"]


def test_what_eval_refuses(model, encoder, tmp_path):
    empty, task = tmp_path / "empty.txt", tmp_path / "task.jsonl"
    empty.write_text("")
    task.write_text(json.dumps(QUESTIONS[0]) + "\n{oops\n")
    assert cotan("eval", model, fails=2) == "cotan: eval: it needs --perplexity FILE or --task FILE; cotan eval --help\n"
    assert cotan("eval", model, "--perplexity", empty, fails=2) == f"cotan: eval: {empty} is empty\n"
    assert cotan("eval", model, "--perplexity", tmp_path / "none", fails=1) == (
        f"cotan: eval: {tmp_path}/none cannot be read: No such file or directory\n")
    assert cotan("eval", model, "--task", task, fails=1).endswith(
        f"{task}: line 2: column 5: string or '}}' expected near 'oops'\n")
    task.write_text(json.dumps(QUESTIONS[0] | {"gold": 3}))
    assert cotan("eval", model, "--task", task, fails=1).endswith(f'{task}: line 1: "gold" is choice 3, there are 0 to 2\n')
    task.write_text(json.dumps(QUESTIONS[0] | {"choices": ["a" * 200, "b"]}))
    assert cotan("eval", model, "--task", task, fails=1).endswith(
        "eval_multiple_choice: 201 tokens of text 0 are scored; they must be 128 at most, the context\n")
    task.write_text("")
    assert cotan("eval", model, "--task", task, fails=1).endswith(f"{task}: it has no questions\n")
    text = tmp_path / "a.txt"
    text.write_text("a b c")
    assert cotan("eval", model, "--perplexity", text, "--limit", 1, fails=2) == "cotan: eval: --limit is for --task\n"
    assert cotan("eval", model, "--task", task, "--stride", 1, fails=2) == "cotan: eval: --stride is for --perplexity\n"
    assert cotan("eval", model, "--perplexity", text, "--context", 129, fails=1).endswith(
        "eval_perplexity: context is 129, it must be 2 to 128\n")
    assert cotan("eval", encoder, "--perplexity", text, fails=1).endswith("eval_perplexity: bert does not generate text\n")
    config = model / "tokenizer_config.json"
    was = config.read_text()
    try:
        config.write_text("{}")
        text.write_text("a")
        assert cotan("eval", model, "--perplexity", text, fails=1).endswith(
            "eval_perplexity: the text has fewer than 2 tokens, and the tokenizer has no BOS or EOS token, after which the "
            "first token would be scored\n")
        (model / "tokenizer.json").rename(model / "away")
        assert cotan("eval", model, "--perplexity", text, fails=1) == (
            f"cotan: tokenizer_load: {model}: the folder has no tokenizer: neither tokenizer.json, nor tokenizer.model, nor a .tiktoken file\n")
    finally:
        if (model / "away").exists():
            (model / "away").rename(model / "tokenizer.json")
        config.write_text(was)


def test_embed(encoder, tmp_path):
    want = ct.lm.load(encoder).embed(LINES).numpy()
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES) + "\r\n")
    for said in (cotan("embed", encoder, *LINES), cotan("embed", encoder, "--file", file), cotan("embed", encoder, stdin=file.read_text())):
        rows = [json.loads(line) for line in said.splitlines()]
        assert [r["index"] for r in rows] == [0, 1, 2, 3] and [r["text"] for r in rows] == LINES
        assert (np.array([r["embedding"] for r in rows], np.float32) == want).all()
    said = cotan("embed", encoder, "--file", file, "--out", tmp_path / "v.npy")
    assert said == f"{tmp_path}/v.npy: 4 vectors of 32 numbers, from 40 tokens\n" and (np.load(tmp_path / "v.npy") == want).all()
    cotan("embed", encoder, "--file", file, "--out", tmp_path / "v.safetensors", "--no-normalize", "--pooling", "cls")
    raw = ct.lm.load(encoder).embed(LINES, pooling="cls", normalize=False).numpy()
    assert (safetensors.read(tmp_path / "v.safetensors")["embeddings"] == raw).all()


@pytest.mark.parametrize("name", ["v.npy", "v.safetensors"])
def test_embed_keeps_a_file_that_is_there(encoder, tmp_path, name):
    file = tmp_path / name
    cotan("embed", encoder, "to be", "--out", file)
    was = file.read_bytes()
    assert cotan("embed", encoder, "to see", "--out", file, fails=2) == (
        f"cotan: embed: {file} is there and would be lost\n  hint: --overwrite replaces it, another --out keeps it\n")
    assert file.read_bytes() == was
    cotan("embed", encoder, "to see", "--out", file, "--overwrite")
    assert file.read_bytes() != was


def test_embed_makes_a_vector_a_line(encoder, model, tmp_path):
    """Also of lines that are empty, by what stands around a text; a model that has nothing there says which line it is."""
    lines = ["", LINES[0], "", "", LINES[1], ""]
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(lines) + "\n")
    want = ct.lm.load(encoder).embed(lines).numpy()
    for said in (cotan("embed", encoder, "--file", file), cotan("embed", encoder, stdin="\r\n".join(lines) + "\r\n")):
        rows = [json.loads(line) for line in said.splitlines()]
        assert [(r["index"], r["text"]) for r in rows] == list(enumerate(lines))
        assert (np.array([r["embedding"] for r in rows], np.float32) == want).all()
    assert cotan("embed", model, "--file", file, fails=2) == (
        f"cotan: embed: line 1 of {file} is empty, and {model} has no token that begins a text: there is nothing to make a vector of\n")
    assert cotan("embed", model, stdin="to be\n\nor\n", fails=2) == (
        f"cotan: embed: line 2 of standard input is empty, and {model} has no token that begins a text: there is nothing to make a vector of\n")


def test_rank(encoder, tmp_path):
    m = ct.lm.load(encoder)
    scores = m.embed(LINES).numpy().astype(np.float64) @ m.embed("to see").numpy()
    order = np.argsort(-scores)
    rows = [json.loads(line) for line in cotan("embed", encoder, *LINES, "--rank", "to see", "--json").splitlines()]
    assert [r["index"] for r in rows] == order.tolist() and abs(np.array([r["score"] for r in rows]) - scores[order]).max() < 1e-6
    said = cotan("embed", encoder, "--rank", "to see", "--top", 2, stdin="\n".join(LINES)).splitlines()
    assert said == [f"{scores[i]:7.4f}  {LINES[i]}" for i in order[:2]]


def test_what_embed_refuses(encoder, tmp_path):
    assert cotan("embed", fails=2) == "cotan: embed: it needs a MODEL: cotan embed MODEL [TEXT...] [options]\n"
    assert cotan("embed", encoder, fails=2) == "cotan: embed: standard input has no lines\n"
    assert cotan("embed", encoder, "a", "--file", "x", fails=2) == "cotan: embed: texts are given as words or by --file, not both\n"
    assert cotan("embed", encoder, "a", "--top", 1, fails=2) == "cotan: embed: --top is for --rank\n"
    assert cotan("embed", encoder, "a", "--json", fails=2) == "cotan: embed: --json is for --rank and --classify\n"
    assert cotan("embed", encoder, "a", "--out", "x.csv", fails=2) == 'cotan: embed: --out is a file .npy or .safetensors, not "x.csv"\n'
    assert cotan("embed", encoder, "a", "--out", "x.npy", "--rank", "b", fails=2) == "cotan: embed: --out is for vectors, not for --rank\n"
    assert cotan("embed", encoder, "a", "--overwrite", fails=2) == "cotan: embed: --overwrite needs --out\n"
    assert cotan("embed", encoder, "a", "--pooling", "middle", fails=2).startswith(
        "cotan: embed: --pooling is mean, cls, last, max, sqrt or weighted, not \"middle\"")
    assert cotan("embed", encoder, "--file", tmp_path / "none", fails=1) == (
        f"cotan: embed: {tmp_path}/none cannot be read: No such file or directory\n")
    assert cotan("embed", encoder, "ok", "a" * 200, fails=1).endswith("lm_embed: text 1 has 201 tokens, the model reads 128 at most\n")
    assert json.loads(cotan("embed", encoder, "a" * 200, "--truncate"))["index"] == 0


def test_help():
    for name in ("embed", "eval"):
        said = cotan(name, "--help")
        assert said.startswith(f"usage: cotan {name} MODEL") and "Examples:" in said and f"  {name}" in cotan("help")
