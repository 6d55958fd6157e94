"""The program, whole: training writes its folder, sampling reads it; Ctrl-C; the same bits again.

With a tiny model, so that what is tested is the program; on device ref and on the compiled one.
"""
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import time
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from support import tfevents

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "cotan"
FIELDS = ["step", "loss", "lr", "grad_norm", "ms", "tokens_per_s", "plans_compiled"]
TINY = ["--layers", 1, "--heads", 2, "--width", 16, "--context", 16, "--batch", 4]


@pytest.fixture(scope="module", params=["cpu", "ref"] if os.environ.get("COTAN_TEST_ALL") else ["cpu"], autouse=True)
def device(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COTAN_DEVICE", request.param)
        yield request.param


def text():
    """Real text: what the project says of itself."""
    return "".join((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md"))[:8000]


def cotan(*words, **options):
    return subprocess.run([str(COTAN), *map(str, words)], capture_output=True, timeout=300,
                          stdin=subprocess.DEVNULL, **options)


def train(corpus, out, *more):
    done = cotan("train", "--data", corpus, *TINY, "--out", out, *more)
    assert done.returncode == 0 and not done.stdout, done.stderr.decode()
    return done.stderr.decode()


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def header(path):
    data = path.read_bytes()
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]]), data


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, device):
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text(text())
    return path


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "a run"
    said = train(corpus, out, "--tokenizer", "chars", "--steps", 12, "--eval-every", 5, "--eval-batches",
                 3, "--seed", 7)
    return out, said


def test_folder(run):
    out, _ = run
    names = sorted(os.listdir(out))
    assert re.fullmatch(r"events\.out\.tfevents\.\d{10}\..+\.\d+\.0", names.pop(2))
    assert names == ["checkpoints", "config.json", "loss.svg", "metrics.jsonl", "model.safetensors",
                     "state.safetensors", "tokenizer.json", "tokenizer_config.json"]
    xml.parse(out / "loss.svg")
    config = json.loads((out / "config.json").read_text())
    assert config["model_type"] == "gpt2" and config["n_layer"] == 1 and config["n_positions"] == 16
    assert "".join(sorted(set(text()))) in config.values()


def test_events(run):
    """What TensorBoard gets is what metrics.jsonl says, rounded to f32."""
    first, *rest = tfevents.read(next(run[0].glob("events.*")))
    assert first.file_version == "brain.Event:2" and not first.scalars and len(rest) == 12
    for event, line in zip(rest, lines(run[0])):
        names = ["loss", "lr", "grad_norm", "tokens_per_s"] + ["val_loss"] * ("val_loss" in line)
        assert event.step == line["step"] and list(event.scalars) == names
        for name in names:
            assert event.scalars[name] == struct.unpack("f", struct.pack("f", line[name]))[0], name
    times = [e.wall_time for e in (first, *rest)]
    assert times == sorted(times) and abs(times[-1] - time.time()) < 600


def test_state(run):
    tensors, data = header(run[0] / "state.safetensors")
    begin = len(data) - max(t["data_offsets"][1] for k, t in tensors.items() if k != "__metadata__")

    def value(name, layout):
        first, last = tensors[name]["data_offsets"]
        return struct.unpack(layout, data[begin + first:begin + last])

    assert value("step", "<i") == (12,)
    assert value("loader.position", "<q") == (12,)
    assert value("random.key", "<2I") == (7, 0)
    names = {k for k in header(run[0] / "model.safetensors")[0] if k != "__metadata__"}
    assert {f"{moment}.{name}" for name in names for moment in ("exp_avg", "exp_avg_sq")} == \
        set(tensors) - {"step", "loader.position", "random.key", "__metadata__"}


def test_metrics(run):
    found = lines(run[0])
    assert [m["step"] for m in found] == list(range(12))
    for m in found:
        evaluated = m["step"] in (0, 5, 10, 11)
        assert list(m) == FIELDS + ["val_loss"] * evaluated
        assert m["ms"] > 0 and m["tokens_per_s"] > 0 and m["grad_norm"] > 0
    assert found[0]["plans_compiled"] > 0
    assert [m["plans_compiled"] for m in found[2:]] == [0] * 10
    # The schedule: a warm-up of a tenth of the steps, then a cosine to a tenth of the rate.
    assert found[0]["lr"] == pytest.approx(5e-4) and found[1]["lr"] == pytest.approx(1e-3)
    assert found[-1]["lr"] < 1.3e-4


def test_a_loss_begins_where_it_must_and_falls(run):
    import math
    found = lines(run[0])
    assert found[0]["loss"] == pytest.approx(math.log(len(set(text()))), abs=0.1)
    assert found[-1]["val_loss"] < found[0]["val_loss"]


def test_progress(run):
    out, said = run
    assert "\r" not in said and "\x1b" not in said  # no terminal: whole lines
    shown = said.splitlines()
    assert "parameters, about" in shown[0] and "chosen" not in shown[0]
    steps = [line for line in shown if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == [f"{n}/12" for n in (0, 3, 5, 5, 8, 10, 10, 12)]
    # Besides what was evaluated, a line a tenth of the steps; they are those that the weights have behind them.
    assert [line["val_loss"] for line in lines(out) if "val_loss" in line] == pytest.approx(
        [float(re.search(r"validation ([\d.]+)", steps[i])[1]) for i in (0, 3, 6, 7)], abs=1e-4)
    for part in ("loss ", " tokens/s", " MB", " left"):
        assert all(part in line for line in steps)
    # What was evaluated stands on its own line alone, and a sample is of the weights that it names.
    assert ["validation" in line for line in steps] == [True, False, False, True, False, False, True, True]
    assert [line for line in shown if line.endswith(" it writes:")] == [f"after {n} steps it writes:" for n in (5, 10, 12)]
    assert all(shown[i + 1].startswith("    | ") for i, line in enumerate(shown) if line.endswith(" it writes:"))
    assert sum(line.startswith("    | ") for line in shown) >= 3
    assert shown[1] == steps[0]  # weights that nothing has trained yet show no sample
    assert shown[-2].startswith("held-out loss: ") and " nats a byte, " in shown[-2]
    command = shlex.split(shown[-1])
    assert command == [str(COTAN), "sample", str(out)]
    done = cotan(*command[1:], "--max-tokens", 5)
    assert done.returncode == 0 and len(done.stdout.decode()) == 6


def on_terminal(stream, words):
    """What the program writes to a stream that is a terminal; it ends well."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([str(COTAN), *map(str, words)], **{stream: theirs})
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    return shown


def test_a_binary_text_is_pointed_out(tmp_path):
    text = tmp_path / "text"
    for data, warning in (b"a\0b" * 500, "cotan: the text holds 500 NUL bytes: is it a binary file?\n"), (b"a.b" * 500, ""):
        text.write_bytes(data)
        said = train(text, tmp_path / "run", "--steps", 1, "--eval-batches", 1, "--overwrite")
        assert "".join(re.findall(r"(?m)^cotan: the text.*\n", said)) == warning


def test_progress_on_a_terminal(corpus, tmp_path):
    shown = on_terminal("stderr", ["train", "--data", corpus, *TINY, "--out", tmp_path / "run", "--steps", 200, "--eval-every",
                                   100, "--eval-batches", 1])
    assert shown.count(b"preparing the first step ...") == shown.count(b"preparing the first step ...\r\x1b[K") >= 1
    assert shown.count(b"\r\x1b[Kstep ") >= 3  # written over in place
    for step in (0, 100, 200):  # an evaluation's line stays
        assert b"\r\x1b[Kstep %d/200 " % step in shown
    assert shown.split(b"\r\n")[-2].startswith(f"{COTAN} sample ".encode())


def test_control_characters_do_not_reach_a_terminal(corpus, tmp_path):
    """A model of bytes that has learned nothing writes any of them."""
    out = tmp_path / "run"
    said = train(corpus, out, "--steps", 1, "--eval-batches", 1)
    shown = "".join(line[6:] for line in said.splitlines() if line.startswith("    | "))
    assert re.search(r"\\x[01][0-9a-f]", shown) and not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", said)
    words = ["sample", out, "--max-tokens", 300]
    raw = subprocess.run([str(COTAN), *map(str, words)], capture_output=True, timeout=300).stdout
    assert re.search(rb"[\x00-\x08\x0e-\x1f]", raw)  # in a pipe the text is as it is
    shown = on_terminal("stdout", words)
    escaped = "".join(c if c in "\n\t" or not re.match(r"[\x00-\x1f\x7f-\x9f]", c) else f"\\x{ord(c):02x}" for c in raw.decode())
    assert re.sub(r" +", " ", shown.decode().replace("\r\n", "\n").replace("\t", " ")) == \
        re.sub(r" +", " ", escaped.replace("\t", " "))  # terminals make spaces of tabs


@pytest.mark.parametrize("more, same", [([], True), (["--seed", 8], False)])
def test_bits(run, corpus, tmp_path, more, same):
    words = ["--tokenizer", "chars", "--steps", 12, "--eval-every", 5, "--eval-batches", 3]
    train(corpus, tmp_path / "other", *words, *(["--seed", 7] if same else []), *more)
    for name in ("model.safetensors", "state.safetensors"):
        assert ((run[0] / name).read_bytes() == (tmp_path / "other" / name).read_bytes()) == same


def test_dropout_is_random_and_repeats(corpus, tmp_path):
    weights = []
    for name, rate in (("a", 0.2), ("b", 0.2), ("c", 0)):
        train(corpus, tmp_path / name, "--steps", 3, "--eval-batches", 1, "--dropout", rate)
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
        assert [m["plans_compiled"] for m in lines(tmp_path / name)][2:] == [0]
    assert weights[0] == weights[1] != weights[2]


def test_batches_add_up(corpus, tmp_path, device):
    """Two batches of three windows are one of six, but for rounding; threads change no bit."""
    def run(name, batch, *more, evaluated=0):
        said = cotan("train", "--data", corpus, *TINY[:-1], batch, "--steps", 5, "--eval-batches", evaluated, *more,
                     "--out", tmp_path / name)
        assert said.returncode == 0, said.stderr.decode()
        return lines(tmp_path / name), said.stderr.decode()

    whole, _ = run("whole", 6)
    parts, said = run("parts", 3, "--accumulate", 2, "--threads", 1)
    assert ", context 16, 2 batches of 3 a step: " in said.splitlines()[0]
    for a, b in zip(whole, parts, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5) and a["lr"] == b["lr"]
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-4)
    assert whole[-1]["val_loss"] == pytest.approx(parts[-1]["val_loss"], rel=1e-5)
    assert [m["plans_compiled"] for m in parts[2:]] == [0] * 3
    again, _ = run("again", 3, "--accumulate", 2, "--threads", 2)
    for name in ("model.safetensors", "state.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    for name, batch, accumulate in (("few", 6, 1), ("fewer", 3, 2)):  # the same windows validate
        run(name, batch, "--accumulate", accumulate, evaluated=2)
    losses = [[line["val_loss"] for line in lines(tmp_path / name) if "val_loss" in line] for name in ("few", "fewer")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0][0] != whole[0]["val_loss"]
    more, _ = run("more", 3, "--accumulate", 3)  # other windows
    assert more[0]["loss"] != parts[0]["loss"]


def test_another_run_in_the_folder(corpus, tmp_path):
    """Its steps, events and saves are not mixed with those of the one before; what no run wrote stays."""
    out = tmp_path / "run"
    out.mkdir()
    others = [out / name for name in ("events.out.tfevents.1.theirs", "events.out.tfevents.0123456789.host.v2",
                                      "notes.txt")]
    for path in others:
        path.write_text("mine")
    words = ["--eval-batches", 1, "--save-every", 2]
    assert "replaced" not in train(corpus, out, "--steps", 4, *words)  # no run was there
    before = set(out.glob("events.out.tfevents.*")) - set(others)
    assert len(before) == 1
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    done = cotan("train", "--data", corpus, *TINY, "--out", out, "--steps", 3, *words)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (
        2, b"", f"cotan: train: in {out} is a run of 4 steps, which would be lost\n"
                "  hint: --resume continues it, --overwrite replaces it\n")
    assert files == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    said = train(corpus, out, "--overwrite", "--steps", 3, *words).splitlines()
    assert said[1] == f"cotan: the run in {out}, of 4 steps, is replaced at the first save"
    after = set(out.glob("events.out.tfevents.*")) - set(others)
    assert len(after) == 1 and not after & before
    assert [line["step"] for line in lines(out)] == [0, 1, 2]
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == ["step-2", "step-3"]
    assert [path.read_text() for path in others] == ["mine"] * 3
    # What is refused before it begins replaces nothing.
    assert cotan("train", "--data", tmp_path / "none", *TINY, "--out", out, "--overwrite").returncode == 1
    assert after < set(out.glob("events.out.tfevents.*")) and len(lines(out)) == 3


@pytest.mark.parametrize("there", ["a model", "files of any kind", "what was best"])
def test_what_a_run_would_take_away(corpus, tmp_path, there):
    """A folder that is no run that can be resumed: what lies there is lost to nobody by mistake either."""
    out, words = tmp_path / "run", ["--steps", 2, "--eval-batches", 1, "--patience", 2]
    if there == "files of any kind":
        names = ["config.json", "metrics.jsonl", "loss.svg", "best/model.safetensors"]
        (out / "best").mkdir(parents=True)
        for name in names:
            (out / name).write_text("mine")
    else:
        train(corpus, out, *words)
        shutil.rmtree(out / "checkpoints")
        names = ["model.safetensors", "state.safetensors", "config.json", "metrics.jsonl", "loss.svg",
                 "best/model.safetensors", "best/config.json", "tokenizer.json", "tokenizer_config.json"]
        if there == "what was best":
            for name in names[:5]:
                (out / name).unlink()
            names = names[5:]
        names.append(next(out.glob("events.*")).name)
    (out / "best/notes.txt").write_text("mine")
    files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    done = cotan("train", "--data", corpus, *TINY, "--out", out, *words)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (
        2, b"", f"cotan: train: in {out} is what would be lost: {', '.join(names)}\n"
                "  hint: --overwrite replaces it, another --out keeps it\n")
    assert files == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    said = train(corpus, out, *words[:-2], "--overwrite").splitlines()
    assert said[1] == f"cotan: what is in {out} is replaced at the first save: {', '.join(names)}"
    assert [line["step"] for line in lines(out)] == [0, 1]
    assert sorted(p.name for p in out.iterdir() if not p.name.startswith("events")) == [
        "best", "checkpoints", "config.json", "loss.svg", "metrics.jsonl", "model.safetensors", "state.safetensors", "tokenizer.json",
        "tokenizer_config.json"]
    assert [p.name for p in (out / "best").iterdir()] == ["notes.txt"]
    (out / "state.safetensors").unlink()
    (out / "state.safetensors").mkdir()
    done = cotan("train", "--data", corpus, *TINY, "--out", out, *words, "--overwrite")
    assert (done.returncode, done.stderr.decode()) == (
        1, f"cotan: {out}/state.safetensors: a folder, where a run writes a file\n")


def test_who_reads_the_progress_goes(corpus, tmp_path):
    """As `2>&1 | head -1` does."""
    out = tmp_path / "run"
    process = subprocess.Popen([str(COTAN), *map(str, [
        "train", "--data", corpus, *TINY, "--out", out, "--steps", 12])], stderr=subprocess.PIPE, restore_signals=True)
    assert b"parameters, about" in process.stderr.readline()
    process.stderr.close()
    assert process.wait(timeout=300) == 0
    assert len(lines(out)) == 12
    assert cotan("sample", out, "--max-tokens", 3).returncode == 0


def test_who_reads_the_text_goes(run):
    process = subprocess.Popen([str(COTAN), "sample", str(run[0]), "--max-tokens", "100000"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, restore_signals=True)
    assert process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait(timeout=60) == -signal.SIGPIPE


def test_interrupt(corpus, tmp_path):
    out = tmp_path / "run"
    process = subprocess.Popen([str(COTAN), *map(str, [
        "train", "--data", corpus, *TINY, "--out", out, "--steps", 10**6, "--eval-batches", 1])],
        stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (out / "metrics.jsonl").exists() and len((out / "metrics.jsonl").read_bytes().splitlines()) > 3:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said.decode()
    steps = len(lines(out))
    assert f"train: stopped after {steps} of 1000000 steps, and saved\n{COTAN} sample " in said.decode()
    assert header(out / "state.safetensors")[0]["loader.position"]["shape"] == []
    assert cotan("sample", out, "--max-tokens", 3).returncode == 0


def sample(out, *more):
    done = cotan("sample", out, *more)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_sample(run):
    out, _ = run
    prompt = text()[:20]  # longer than the context
    once = sample(out, "--prompt", prompt, "--max-tokens", 40, "--seed", 3)
    assert once.startswith(prompt) and len(once) == 20 + 40 + 1
    assert once == sample(out, "--prompt", prompt, "--max-tokens", 40, "--seed", 3, "--threads", 2)
    assert once != sample(out, "--prompt", prompt, "--max-tokens", 40, "--seed", 4)
    assert once.startswith(sample(out, "--prompt", prompt, "--max-tokens", 25, "--seed", 3)[:-1])
    greedy = sample(out, "--max-tokens", 30, "--temperature", 0, "--seed", 1)
    assert greedy == sample(out, "--max-tokens", 30, "--temperature", 0, "--seed", 2)
    assert greedy == sample(out, "--max-tokens", 30, "--top-k", 1)


def test_device_is_asked_for(corpus, tmp_path):
    said = train(corpus, tmp_path / "run", "--steps", 1, "--eval-batches", 1, "--device", "ref")
    assert said.splitlines()[-1] == f"{COTAN} sample {tmp_path}/run --device ref"


def test_info(run):
    said = cotan("info", run[0]).stdout.decode()
    assert "model: gpt2, 1 layer, 2 heads, width 16, context 16\n" in said
    first, *_, last = lines(run[0])
    assert f"training: 12 steps, loss {first['loss']:.4f} at first and {last['loss']:.4f} at last\n" in said
    assert f"\nvalidation: loss {last['val_loss']:.4f} after 12 steps\n" in said  # as training said: step 12/12
    assert re.search(rf"^step 12/12 .* validation {last['val_loss']:.4f} ", run[1], re.M)
    assert "wte.weight" in said


def test_info_of_a_run_that_was_stopped(run, tmp_path):
    """Its newest evaluation was of the weights before a step."""
    out = tmp_path / "run"
    shutil.copytree(run[0], out)
    written = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text("".join(written[:-1]))
    loss = lines(out)[10]["val_loss"]
    said = cotan("info", out).stdout.decode()
    assert f"\nvalidation: loss {loss:.4f} after 10 steps\n" in said
    assert re.search(rf"^step 10/12 .* validation {loss:.4f} ", run[1], re.M)


def test_info_of_saves(run):
    saves, each = run[0] / "checkpoints", "each is a folder for cotan info and cotan sample"
    for folder in (str(saves), f"{saves}/"):
        said = cotan("info", folder)
        assert (said.returncode, said.stdout.decode()) == (
            0, f"2 saves of a run, the latest first: {each}\n  {saves}/step-12\n  {saves}/step-10\n")
    assert cotan("info", saves / "step-12").stdout.startswith(b"model: gpt2, ")


def test_info_of_a_single_save_and_of_none(run, tmp_path):
    shutil.copytree(run[0] / "checkpoints/step-12", tmp_path / "step-12")
    assert cotan("info", tmp_path).stdout.decode() == (
        f"1 save of a run, which is a folder for cotan info and cotan sample\n  {tmp_path}/step-12\n")
    (tmp_path / "step-13").mkdir()  # a chapter, say
    (tmp_path / "step-13/text.txt").write_text("ab")
    assert cotan("info", tmp_path).stdout.startswith(b"text: 2 bytes")


def test_info_of_a_run_without_a_save(run, tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    said = "a run that has not saved yet: there is no model\n"
    assert cotan("info", tmp_path).stdout.decode() == said
    shutil.copy(run[0] / "metrics.jsonl", tmp_path)
    assert re.fullmatch(re.escape(said) + r"training: 12 steps, loss [\d.]+ at first and [\d.]+ at last\n"
                        r"validation: loss [\d.]+ after \d+ steps\n", cotan("info", tmp_path).stdout.decode())


def test_a_size_is_chosen(corpus, tmp_path):
    done = cotan("train", "--data", corpus, "--steps", 1, "--eval-batches", 1, cwd=tmp_path)
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert "chosen for this machine: " in said and " GFLOP/s measured)" in said
    assert said.splitlines()[-1].startswith(f"{COTAN} sample run")
    again = cotan("train", "--data", corpus, *TINY, "--steps", 1, "--eval-batches", 1, cwd=tmp_path)
    assert again.stderr.decode().splitlines()[-1].startswith(f"{COTAN} sample run-2")
