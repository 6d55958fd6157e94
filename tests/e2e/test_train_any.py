"""cotan train with tokens of its own and of other architectures than GPT-2: runs learn, write, go on with the same bits, and go on
from what others left; bad options are told in a sentence."""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support import safetensors
from support.program import command

ROOT = Path(__file__).resolve().parents[2]
COTAN = command("cotan")
SIZES = ["--layers", 2, "--heads", 2, "--width", 32, "--context", 16, "--batch", 2]
STEPS = ["--steps", 12, "--save-every", 6, "--eval-every", 6, "--eval-batches", 2, "--lr", 0.02, "--warmup", 0, "--patience", 9,
         "--dropout", 0.1, "--seed", 3]
TENSORS = ("model.safetensors", "state.safetensors", "best/model.safetensors")


def cotan(*words, fails=0, **env):
    done = subprocess.run([*COTAN, *map(str, words)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                          env=os.environ | {"COTAN_CC": "none"} | env)
    assert done.returncode == fails, done.stderr
    return done.stdout if words[0] in ("sample", "run", "info") and not fails else done.stderr


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text((ROOT / "tests/e2e/few_letters.txt").read_text())
    return path


@pytest.fixture(scope="module", params=["gpt2", "llama", "mamba"] + (["qwen3", "mixtral"] if os.environ.get("COTAN_TEST_ALL") else []))
def run(request, text, tmp_path_factory):
    out = tmp_path_factory.mktemp(request.param) / "run"
    said = cotan("train", "--data", text, "--tokenizer", "bpe:300", "--arch", request.param, *SIZES, *STEPS, "--out", out)
    return request.param, out, said


def losses(out, name="loss"):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line[name] for line in lines if name in line]


def test_it_learns(run):
    kind, out, said = run
    loss = losses(out)
    assert loss[0] > np.log(300) - 1 and np.mean(loss[-3:]) < loss[0] - 0.5
    assert re.match(r"3000 bytes of text, (\d+) tokens, \d+ to train on; a vocabulary of 300; ", said)
    nats = re.search(r"^held-out loss: ([\d.]+) nats a byte, ([\d.]+) nats a token, after step \d+$", said, re.M)
    tokens = np.load(out / "tokens.npy")
    assert abs(float(nats[2]) / float(nats[1]) / (3000 / len(tokens)) - 1) < 0.2 and len(tokens) < 3000 / 1.3
    assert tokens.dtype == np.int32 and (tokens[:-1] != 0).all() and tokens[-1] == 0  # 0 ends the text
    assert json.loads((out / "config.json").read_text())["model_type"] == kind
    assert json.loads((out / "generation_config.json").read_text())["eos_token_id"] == 0


def test_it_writes(run):
    _, out, _ = run
    once = cotan("sample", out, "--prompt", "The ", "--max-tokens", 20)
    assert once.startswith("The ") and once == cotan("sample", out, "--prompt", "The ", "--max-tokens", 20)
    for folder in (out, out / "best"):
        assert cotan("run", folder, "--prompt", "The ", "--max-tokens", 20).startswith("The ")
    assert cotan("sample", out, "--max-tokens", 4) == cotan("sample", out / "checkpoints/step-12", "--max-tokens", 4)


@pytest.mark.parametrize("again", ["kept", "anew", "damaged"])
def test_it_goes_on_with_the_same_bits(run, tmp_path, again):
    kind, out, _ = run
    if again != "kept" and kind != "llama":
        return  # one is enough
    copy = tmp_path / "run"
    shutil.copytree(out, copy)
    if again == "anew":
        (copy / "tokens.npy").unlink()
        shutil.rmtree(copy / "best")
    if again == "damaged":
        tokens = np.load(copy / "tokens.npy")
        tokens[5] ^= 1
        np.save(copy / "tokens.npy", tokens)
    said = cotan("train", "--resume", copy, "--resume-step", 6)
    assert "resuming at step 6" in said
    for name in TENSORS:
        assert (out / name).read_bytes() == (copy / name).read_bytes(), name
    assert (out / "best/tokenizer.json").read_bytes() == (copy / "best/tokenizer.json").read_bytes()
    assert (out / "tokens.npy").read_bytes() == (copy / "tokens.npy").read_bytes()


def test_more_tokens_than_a_context_has(run):
    assert len(cotan("sample", run[1], "--max-tokens", 60, "--temperature", 0)) > 60


def test_going_on_from_it(run, text, tmp_path):
    kind, out, _ = run
    said = cotan("train", "--data", text, "--from", out, "--context", 8, "--batch", 2, "--steps", 4, "--eval-batches", 0, "--out", tmp_path / "on")
    assert f"on from {out}, 2 layers, {2 if kind != 'mamba' else 1} head" in said
    ours, theirs = (json.loads((folder / "config.json").read_text()) for folder in (out, tmp_path / "on"))
    own = theirs.pop("training")
    assert own["lr"] == 5e-5 and own["from"] == str(out)
    for config in (ours, theirs):
        config.pop("crc32c"), config.pop("training", None)
    assert ours == theirs
    assert losses(tmp_path / "on", "val_loss")[0] < losses(out, "val_loss")[0] - 0.3
    before, after = (safetensors.read(folder / "model.safetensors") for folder in (out, tmp_path / "on"))
    assert set(before) == set(after)
    assert max(abs(before[name] - after[name]).max() for name in before) < 1e-3
    cotan("train", "--resume", tmp_path / "on", "--steps", 6)
    assert cotan("sample", tmp_path / "on", "--prompt", "The ", "--max-tokens", 4).startswith("The ")


@pytest.mark.parametrize("tokens", ["bytes", "chars"])
def test_bytes_and_characters_have_a_tokenizer_too(text, tmp_path, tokens):
    said = cotan("train", "--data", text, "--tokenizer", tokens, "--arch", "llama", *SIZES, "--steps", 2, "--out", tmp_path / "run")
    assert f"{'bytes' if tokens == 'bytes' else 'characters'} of text" in said
    assert cotan("run", tmp_path / "run", "--prompt", "Cotan ", "--max-tokens", 3).startswith("Cotan ")
    said = cotan("train", "--data", text, "--from", tmp_path / "run", "--context", 8, "--steps", 1, "--out", tmp_path / "on")
    count = len((text.read_bytes() if tokens == "bytes" else text.read_text()))
    assert f" {count} tokens, " in said
    cotan("train", "--resume", tmp_path / "run", "--steps", 3)


def test_a_tokenizer_that_is_there(run, text, tmp_path):
    for path in (run[1], run[1] / "tokenizer.json"):
        said = cotan("train", "--data", text, "--tokenizer", path, *SIZES, "--steps", 1, "--out", tmp_path / Path(path).name)
        assert "a vocabulary of 300; " in said
        assert (tmp_path / Path(path).name / "tokenizer.json").read_bytes() == (run[1] / "tokenizer.json").read_bytes()


def test_precision_and_limits(text, tmp_path):
    said = cotan("train", "--data", text, "--tokenizer", "bpe:300", "--arch", "llama", *SIZES, "--kv-heads", 1, "--intermediate-size", 40, "--steps", 2,
                 "--precision", "bf16", "--accumulate", 2, "--out", tmp_path / "run")
    assert "products in bf16" in said and "2 batches of 2 a step" in said
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert (config["num_key_value_heads"], config["intermediate_size"]) == (1, 40)
    planned = subprocess.run([*COTAN, "plan", "--data", text, "--tokenizer", "bpe:300", "--arch", "mixtral", *map(str, SIZES), "--json"],
                             capture_output=True, text=True)
    assert planned.returncode == 0 and json.loads(planned.stdout)["blocks"] == 2


def test_other_text(run, tmp_path):
    copy, other = tmp_path / "run", tmp_path / "other.txt"
    shutil.copytree(run[1], copy)
    other.write_text((ROOT / "CONTRIBUTING.md").read_text()[:6000])
    said = cotan("train", "--resume", copy, "--data", other, fails=1)
    assert re.fullmatch(r"cotan: train: the text is not the one that the run was trained on: \d+ tokens with CRC-32C \w{8}, "
                        r"not \d+ with \w{8}\n"
                        r"  hint: give the new path of the text as --data\n", said)


ROW = "mine: like=llama act=relu2\n  mlp=ungated up=mlp.up down=mlp.down\n"


def test_an_architecture_of_ones_own(text, tmp_path):
    rows = tmp_path / "rows"
    rows.write_text("# of this test\n" + ROW)
    out = tmp_path / "run"
    cotan("train", "--data", text, "--arch", "mine", *SIZES, "--steps", 2, "--out", out, COTAN_ARCHITECTURES=str(rows))
    assert "model.layers.0.mlp.up.weight" in safetensors.read(out / "model.safetensors")
    assert cotan("run", out, "--prompt", "The ", "--max-tokens", 2, COTAN_ARCHITECTURES=str(rows)).startswith("The ")
    assert cotan("sample", out, fails=1).startswith(
        f'cotan: {out}/config.json: key "model_type" is "mine", an architecture that is not known\n')


@pytest.mark.parametrize("row, message", [
    ("mine: like=llama atc=relu2", '"mine" has a setting "atc", which there is not\n  hint: the nearest is "act"'),
    ("mine: like=lama", 'there is no architecture "lama" to be like'),
    ("mine: like=llama norm=lyer", '"norm" is "lyer", it must be one of: rms rms1 layer'),
    ("Mine like=llama", '"Mine like=llama" is no row: it begins with a name of a-z, 0-9 and _, and a colon'),
])
def test_bad_rows(text, tmp_path, row, message):
    rows = tmp_path / "rows"
    rows.write_text(row + "\n")
    said = cotan("train", "--data", text, "--arch", "llama", fails=1, COTAN_ARCHITECTURES=str(rows))
    hint = "" if "hint" in message else f"\n  hint: the row is in {rows}, which COTAN_ARCHITECTURES names"
    assert said == f"cotan: architecture: {message}{hint}\n"


@pytest.mark.parametrize("words, message", [
    (["--tokenizer", "bpe:100"], "--tokenizer bpe:100: a byte-level BPE has 257 tokens at least (256 bytes and the end of a text), and fewer than 16777216"),
    (["--tokenizer", "bpe:1e4"], "--tokenizer bpe:1e4: a byte-level BPE has 257 tokens at least (256 bytes and the end of a text), and fewer than 16777216"),
    (["--tokenizer", "/nowhere"], '--tokenizer is bytes, chars, bpe:8192 (or another number) or the path of a tokenizer, not "/nowhere"'),
    (["--arch", "lama"], "--arch lama is an unknown architecture\n  hint: the nearest that is known is llama"),
    (["--arch", "bert"], "--arch bert is not a generative architecture, and only those can be trained"),
    (["--arch", "t5"], "--arch t5 is not a generative architecture, and only those can be trained"),
    (["--arch", "llama", "--no-bias"], "--no-bias is not allowed with --arch llama, which determines its biases"),
    (["--arch", "llama", "--kv-heads", 2], "--kv-heads needs --heads"),
    (["--arch", "llama", *SIZES, "--kv-heads", 3], "2 heads are no multiple of 3 of keys and values"),
    (["--arch", "gptj", *SIZES, "--kv-heads", 1], "--kv-heads 1 is not allowed with --arch gptj, where it is 2"),
    (["--arch", "llama", "--width", 34, *SIZES[:4], *SIZES[6:]], "17 numbers a head, the width divided by the heads, are not even: pairs of them are rotated by the position"),
    (["--intermediate-size", 64], "--intermediate-size needs --arch (a GPT-2 has no such option)"),
    (["--kv-heads", 2], "--kv-heads needs --arch (a GPT-2 has no such option)"),
    (["--from", "x", "--tokenizer", "bytes"], "--tokenizer is not allowed with --from, whose model has its own"),
    (["--from", "x", "--arch", "llama"], "--arch is not allowed with --from, whose model has its own"),
    (["--from", "x", "--layers", 2], "--layers is not allowed with --from, whose model has its own"),
    (["--from", "x", "--heads", 2], "--heads is not allowed with --from, whose model has its own"),
    (["--from", "x", "--no-bias"], "--no-bias is not allowed with --from, whose model has its own"),
])
def test_bad_options(text, tmp_path, words, message):
    assert cotan("train", "--data", text, *words, fails=2) == f"cotan: train: {message}\n"


def edited(folder, to, **values):
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text()) | values
    config.pop("crc32c")
    (to / "config.json").write_text(json.dumps(config))
    return to


def test_models_that_there_is_no_going_on_from(run, text, tmp_path):
    kind, out, _ = run
    if kind != "llama":
        return  # one is enough
    on = ["train", "--data", text, "--from"]
    assert cotan(*on, out, "--context", 17, fails=2) == f"cotan: train: --context 17 is more than the 16 tokens of {out}\n"
    other = edited(out, tmp_path / "other", vocab_size=299)
    assert "has do not fit" in cotan(*on, other, fails=1)
    few = edited(out, tmp_path / "few", quantization_config={"quant_method": "fp8"})
    assert cotan(*on, few, fails=2) == (f"cotan: train: --from {few}: its weights are quantised, and have no gradients\n")
    assert cotan(*on, "no/where", fails=1).endswith("hint: download it: cotan pull no/where\n")
    (out / "tokenizer.json").rename(out / "aside.json")
    try:
        assert cotan(*on, out, fails=1) == (f"cotan: {out}: the folder has no tokenizer: neither tokenizer.json, nor tokenizer.model, nor "
                                            "a .tiktoken file\n")
    finally:
        (out / "aside.json").rename(out / "tokenizer.json")
    assert cotan("train", "--resume", out, "--arch", "qwen3", fails=2) == f"cotan: train: --arch qwen3 contradicts the run in {out}, which has llama\n"
    assert cotan("train", "--resume", out, "--tokenizer", "chars", fails=2) == (
        f"cotan: train: --tokenizer chars contradicts the run in {out}, which has bpe:300\n")


def test_a_damaged_run(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run[1], copy)
    path = copy / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.unlink()
    path.write_bytes(data)
    said = cotan("sample", copy, fails=1)
    assert f"{path}: " in said and "hint: the checkpoint of step 12 is complete: cotan sample " in said


def driver(header, name, calls):
    """A program that gives each variable of the function memory of its own, and prints the logits of each call."""
    fill = "".join(f"static float m_{v}[{' * '.join(d.split(', ')).replace(',', '')}]; s.{v} = m_{v};\n"
                   for v, d in re.findall(r"float \*(\w+); // \(([\d, ]+)\) f32", header))
    return f"""#include "{name}.h"
#include <stdio.h>
static unsigned char arena[{name.upper()}_ARENA_BYTES] __attribute__((aligned(64)));
int main(void) {{
    static const int32_t tokens[] = {{{", ".join(map(str, TOKENS))}}};
    struct {name} s;
    {name}_init(&s);
    s.arena = arena;
    {fill}
    {calls}
}}
"""


TOKENS = [5, 17, 250, 3, 99, 42, 42, 7, 280, 11, 1, 64, 128, 200, 33, 9]
CALLS = {
    "window": "s.tokens = tokens; window(&s); fwrite(s.logits, 4, 16 * 300, stdout);",
    "token": "for (int i = 0; i < 16; i++) { s.tokens = tokens + i, s.position = i; token(&s); fwrite(s.logits, 4, 300, stdout); }",
}


def test_it_is_written_as_c(run, tmp_path):
    kind, out, _ = run
    if kind != "llama" and not os.environ.get("COTAN_TEST_ALL"):
        return  # the compiler takes seconds for each
    logits = {}
    for name, calls in CALLS.items():
        cotan("compile", out, "--out", tmp_path / name, "--function", name, "--embed-weights")
        (tmp_path / "main.c").write_text(driver((tmp_path / f"{name}.h").read_text(), name, calls))
        subprocess.run(["cc", "-O0", "-o", name, "main.c", f"{name}.c", "-lm"], cwd=tmp_path, check=True)
        done = subprocess.run([tmp_path / name], capture_output=True, check=True)
        logits[name] = np.frombuffer(done.stdout, np.float32).reshape(16, 300)
    assert np.isfinite(logits["window"]).all() and np.ptp(logits["window"]) > 0.1
    assert (logits["token"] == logits["window"]).all()  # reading at once and one by one
    np.savez(tmp_path / "in.npz", ids=np.array([TOKENS], np.int32))
    program = command("tests/unit/test_language_models")
    subprocess.run([*program, "logits", out, tmp_path / "in.npz", tmp_path / "out.npz"], check=True)
    assert (np.load(tmp_path / "out.npz")["logits"][0] == logits["window"]).all()
    cotan("compile", out, "--out", tmp_path / "step", "--function", "step")
    assert "learning_rate" in (tmp_path / "step.h").read_text()
