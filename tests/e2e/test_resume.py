"""Runs that are killed, interrupted, out of disk or damaged, and resumed: the same bits at the end.

io_faults.c makes single calls to the system kill the process or fail, one after the other.
"""
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "cotan"
STEPS, SAVES = 6, (2, 4, 6)
OPTIONS = ["--tokenizer", "chars", "--layers", 1, "--heads", 2, "--width", 4, "--context", 4, "--batch", 2,
           "--eval-batches", 1, "--dropout", 0.1, "--seed", 11]
SHORT = ["--steps", STEPS, "--save-every", 2, "--eval-every", 3]
TENSORS = ("model.safetensors", "state.safetensors")
EVERY = bool(os.environ.get("COTAN_TEST_ALL"))  # each call in turn, which takes minutes


def cotan(*words, env=None):
    return subprocess.run([str(COTAN), *map(str, words)], capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL, env=os.environ | (env or {}))


@pytest.fixture(scope="module", autouse=True)
def on_ref():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COTAN_DEVICE", "ref")
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    text = (ROOT / "tests/e2e/few_letters.txt").read_text()  # of its own: which step is the best depends on it
    path.write_text(re.sub(r"[^a-h \n]", lambda c: "abcdefgh"[ord(c[0]) % 8], text))  # few tokens: a thousand runs read it
    return path


@pytest.fixture
def memory(tmp_path):
    """A folder where forcing to disk costs nothing, if there is one."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared, prefix="cotan-test-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    path = tmp_path_factory.mktemp("shim") / "io_faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", path, ROOT / "tests/e2e/io_faults.c"],
                   check=True)
    return path


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    done = cotan("train", "--data", corpus, *OPTIONS, *SHORT, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def faulty(shim, folder, kind, at, *words, **more):
    env = {"LD_PRELOAD": str(shim), "FAULT_DIR": str(folder), "FAULT": kind, "FAULT_AT": str(at),
           "ASAN_OPTIONS": "verify_asan_link_order=0"} | more
    return cotan(*words, env=env)


def count(shim, folder, *words):
    path = folder.parent / f"{folder.name}.count"
    done = faulty(shim, folder, "", 0, *words, FAULT_COUNT=str(path))
    assert done.returncode == 0, done.stderr
    return int(path.read_text())


def checkpoints(out):
    """Steps of the checkpoints that are there, oldest first."""
    names = os.listdir(out / "checkpoints") if (out / "checkpoints").exists() else []
    return sorted(int(n[5:]) for n in names if re.fullmatch(r"step-\d+", n))


def lines(out):
    """metrics.jsonl without what a clock or the compiler says."""
    found = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in m.items() if k not in ("ms", "tokens_per_s", "plans_compiled")}
            for m in found]


def leftovers(out):
    return [p for p in out.rglob("*") if ".tmp" in p.name]


def same_end(out, whole, steps=STEPS, saves=SAVES):
    for name in TENSORS:
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    assert lines(out) == lines(whole)
    assert [m["step"] for m in lines(out)] == list(range(steps))
    xml.parse(out / "loss.svg")
    assert (out / "loss.svg").read_bytes() == (whole / "loss.svg").read_bytes()
    assert checkpoints(out) == list(saves[-2:])
    for name in (*TENSORS, "config.json"):
        assert (out / name).read_bytes() == (out / f"checkpoints/step-{steps}" / name).read_bytes()
    assert leftovers(out) == []


def resume(out, steps=STEPS):
    """Resumes and checks what it says and that it ran the later steps alone; the step it began at."""
    last = checkpoints(out)[-1]
    before = (out / "metrics.jsonl").read_text().splitlines()[:last]
    done = cotan("train", "--resume", out)
    assert done.returncode == 0, done.stderr
    said = f"all {last} steps are done; more --steps continue it" if last == steps else f"resuming at step {last}"
    assert re.findall(r"^(?:resuming at|all) .*", done.stderr, re.M) == [said]
    after = (out / "metrics.jsonl").read_text().splitlines()
    # The clock's fields too: no step is run again. The last step's line may lack its evaluation if the signal came after the step.
    evaluated = last == steps and after[-1].startswith(before[-1][:-1] + ", ")
    assert after[:last - evaluated] == before[:last - evaluated] and len(after) == steps
    return last


# ------------------------------------------------------------------------------- one run, undisturbed


def test_checkpoints(whole):
    assert checkpoints(whole) == [4, 6]
    for step in (4, 6):
        folder = whole / f"checkpoints/step-{step}"
        assert sorted(os.listdir(folder)) == ["config.json", *TENSORS]
        assert cotan("sample", folder, "--max-tokens", 3).returncode == 0
    for name in (*TENSORS, "config.json"):
        assert os.path.samefile(whole / name, whole / "checkpoints/step-6" / name)


def test_a_run_that_is_done(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    assert resume(tmp_path / "run") == STEPS
    same_end(tmp_path / "run", whole)


def test_from_an_older_checkpoint(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    done = cotan("train", "--resume", tmp_path / "run", "--resume-step", 4)
    assert done.returncode == 0 and "\nresuming at step 4\n" in done.stderr
    same_end(tmp_path / "run", whole)


def test_the_scale_of_a_loss_goes_on(corpus, tmp_path):
    words = ["train", "--data", corpus, *OPTIONS, *SHORT, "--precision", "fp16"]
    done = cotan(*words, "--out", tmp_path / "half")
    assert done.returncode == 0 and ", products in f16, " in done.stderr, done.stderr
    assert [m["loss_scale"] for m in lines(tmp_path / "half")] == [65536.0] * 6
    shutil.copytree(tmp_path / "half", tmp_path / "run")
    done = cotan("train", "--resume", tmp_path / "run", "--resume-step", 4)
    assert done.returncode == 0, done.stderr
    same_end(tmp_path / "run", tmp_path / "half")


def test_the_text_may_move(whole, corpus, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    shutil.copy(corpus, tmp_path / "elsewhere")
    words = ["train", "--resume", tmp_path / "run", "--resume-step", 4, "--data", tmp_path / "elsewhere"]
    assert cotan(*words).returncode == 0
    shutil.copytree(whole, tmp_path / "other")
    (tmp_path / "elsewhere").write_text(corpus.read_text() + ".")
    words[2] = tmp_path / "other"
    done = cotan(*words)
    assert done.returncode == 1 and re.fullmatch(
        r"cotan: train: the text is not the one that the run was trained on: 3001 characters with CRC-32C [0-9a-f]{8}, not "
        r"3000 with [0-9a-f]{8}\n"
        r"  hint: give the new path of the text as --data\n", done.stderr), done.stderr


@pytest.mark.parametrize("words, message", [
    (["--steps", 5], "--steps 5 contradicts the run in {run}, which has 6"),
    (["--accumulate", 2], "--accumulate 2 contradicts the run in {run}, which has 1"),
    (["--lr", 0.5], "--lr 0.5 contradicts the run in {run}, which has 0.001"),
    (["--seed", 0], "--seed 0 contradicts the run in {run}, which has 11"),
    (["--dropout", 0], "--dropout 0 contradicts the run in {run}, which has 0.1"),
    (["--tokenizer", "bytes"], "--tokenizer bytes contradicts the run in {run}, which has chars"),
    (["--no-bias"], "--no-bias contradicts the run in {run}, which has biases"),
    (["--precision", "bf16"], "--precision bf16 contradicts the run in {run}, which has fp32"),
    (["--clip", 0], "--clip 0 contradicts the run in {run}, which has 1"),
    (["--out", "x"], "--out is not allowed with --resume, which continues in its folder"),
])
def test_contradictions(whole, words, message):
    done = cotan("train", "--resume", whole, *words)
    assert (done.returncode, done.stderr) == (2, f"cotan: train: {message.format(run=whole)}\n")


def test_the_same_options_are_none(whole, corpus, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    done = cotan("train", "--resume", tmp_path / "run", "--data", corpus, *OPTIONS, *SHORT)
    assert done.returncode == 0, done.stderr


def test_longer_than_it_was_to_be(whole, corpus, tmp_path):
    """The learning rate is, from there on, that of a run which was to be as long from the beginning."""
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    done = cotan("train", "--resume", out, "--resume-step", 4, "--steps", 9)
    assert done.returncode == 0, done.stderr
    assert "\nresuming at step 4, for 9 steps instead of 6\n" in done.stderr
    assert cotan("train", "--data", corpus, *OPTIONS, *SHORT[2:], "--steps", 9, "--out", tmp_path / "long").returncode == 0
    rates, long, short = ([m["lr"] for m in lines(x)] for x in (out, tmp_path / "long", whole))
    assert rates[:4] == short[:4] and rates[4:] == long[4:] and rates[4] != short[4]
    assert lines(out)[:4] == lines(whole)[:4] and checkpoints(out) == [8, 9]
    # A save knows of it.
    shutil.copytree(out, tmp_path / "again")
    done = cotan("train", "--resume", tmp_path / "again", "--resume-step", 8)
    assert done.returncode == 0 and "\nresuming at step 8\n" in done.stderr
    same_end(tmp_path / "again", out, 9, (8, 9))


def test_a_validation_loss_is_shown_when_there_is_one(whole, tmp_path):
    """Not that of the process before."""
    shutil.copytree(whole, tmp_path / "run")
    done = cotan("train", "--resume", tmp_path / "run", "--resume-step", 4)
    shown = re.findall(r"^step (\S+)  loss \S+  (?:validation (\S+)  )?\d", done.stderr, re.M)
    assert [s for s, _ in shown] == ["5/6", "6/6"]
    assert shown[0][1] == "" and float(shown[1][1]) == pytest.approx(lines(whole)[-1]["val_loss"], abs=1e-4)
    assert re.findall(r"^after .*$", done.stderr, re.M) == ["after 6 steps it writes:"]


def test_a_text_that_is_gone_is_asked_for(corpus, tmp_path):
    out, text = tmp_path / "run", tmp_path / "text.txt"
    shutil.copy(corpus, text)
    assert cotan("train", "--data", text, *OPTIONS, *SHORT, "--out", out).returncode == 0
    text.unlink()
    gone = f"cotan: {text}: cannot open: No such file or directory\n"
    for words, hint in ((), "  hint: give the new path of the text as --data\n"), (("--data", text), ""):
        done = cotan("train", "--resume", out, "--steps", 7, *words)
        assert done.returncode == 1 and done.stderr == gone + hint


def test_batches_of_a_step(corpus, tmp_path):
    out = tmp_path / "run"
    words = ["train", "--data", corpus, *OPTIONS, *SHORT, "--accumulate", 3, "--out"]
    assert cotan(*words, tmp_path / "whole").returncode == 0
    shutil.copytree(tmp_path / "whole", out)
    assert cotan("train", "--resume", out, "--resume-step", 4).returncode == 0
    same_end(out, tmp_path / "whole")


# --------------------------------------------------------------------------------- the calls of a save


def calls_of(shim, out, *words):
    """(call, paths in `out`) of a run, in their order, but for folders that are made and TensorBoard's events; writes that follow each other on one file are one, and a name for the while ends in .tmp alone."""
    log = out.parent / f"{out.name}.log"
    done = faulty(shim, out, "", 0, *words, FAULT_LOG=str(log))
    assert done.returncode == 0, done.stderr
    found = []
    for line in log.read_text().splitlines():
        _, name, *paths = line.split("\t")
        assert all(Path(path).is_relative_to(out) for path in paths), line
        call = (name, *(re.sub(r"\.\d+-\d+\.tmp$", ".tmp", str(Path(path).relative_to(out))) for path in paths))
        if name == "mkdir" or call[1].startswith("events"):
            continue
        if not (name == "write" and found and found[-1] == call):
            found.append(call)
    return found


def placed(folder, name):
    """A file that is there whole, or not at all, and stays."""
    path = f"{folder}/{name}" if folder != "." else name
    return [("write", f"{path}.tmp"), ("fsync", f"{path}.tmp"), ("rename", f"{path}.tmp", path), ("fsync", folder)]


def named(step, name):
    return [("link", f"checkpoints/step-{step}/{name}", f"{name}.tmp"), ("rename", f"{name}.tmp", name)]


def test_the_calls_of_a_save(shim, corpus, memory):
    """Each in its place: a file is on the disk before its name is, its name before the folder has its own, and the run's
    files are the newest save's when that is there."""
    out = memory / "run"
    calls = calls_of(shim, out, "train", "--data", corpus, *OPTIONS, *SHORT, "--out", out)
    want = []
    for step in SAVES:
        unfinished, whole = f"checkpoints/step-{step}.tmp", f"checkpoints/step-{step}"
        want += [("write", "metrics.jsonl"), ("fsync", "metrics.jsonl")]  # what is saved has been told
        want += [("fsync", ".")] if step == SAVES[0] else []  # the new folder `checkpoints`
        want += [("fsync", "checkpoints")]  # the new folder in it
        for name in ("config.json", "model.safetensors", "state.safetensors"):
            want += placed(unfinished, name)
        want += [("rename", unfinished, whole), ("fsync", "checkpoints")]
        if step == SAVES[0]:
            want += placed(".", "tokenizer.json") + placed(".", "tokenizer_config.json")
        for name in ("state.safetensors", "model.safetensors", "config.json"):
            want += named(step, name)
        want += [("fsync", ".")]
        if step == SAVES[-1]:  # the oldest goes when the newest is whole
            want += [("rename", f"checkpoints/step-{SAVES[0]}", f"checkpoints/step-{SAVES[0]}.tmp")]
        want += placed(".", "loss.svg")
    assert calls == want, "\n".join(map(str, calls))


# ------------------------------------------------------------------------------------- early stopping

PATIENT = ["--steps", 60, "--save-every", 2, "--eval-every", 1, "--patience", 3, "--min-delta", 0.001, "--lr", 0.3]


@pytest.fixture(scope="module")
def patient(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("patient") / "run"
    done = cotan("train", "--data", corpus, *OPTIONS, *PATIENT, "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done.stderr


def same_best(out, other):
    for name in ("model.safetensors", "config.json"):
        assert (out / "best" / name).read_bytes() == (other / "best" / name).read_bytes(), name


def training(folder):
    return json.loads((folder / "config.json").read_text())["training"]


def test_a_run_that_no_longer_improves_ends(patient):
    out, said = patient
    best, at, stale = float("inf"), 0, 0
    found = lines(out)
    for m in found:  # the rule, again
        stale += 1
        if m["val_loss"] < best - 0.001:
            best, at, stale = m["val_loss"], m["step"], 0
        if stale == 3:
            break
    assert stale == 3 and m is found[-1] and len(found) < 60
    assert [i for i, m in enumerate(found) if "ended" in m] == [len(found) - 1] and m["ended"] == "patience"
    shown = said.splitlines()
    assert (f"stopped early, after step {len(found)} of 60: the validation loss did not improve on the {best:.4f} of "
            f"step {at} in 3 evaluations") == shown[-4]
    assert shown[-2].startswith("held-out loss: ") and shown[-2].endswith(
        f", {best:.4f} nats a character, after step {at}")
    assert shown[-1] == f"{COTAN} sample {out}/best"
    assert cotan("sample", out / "best", "--max-tokens", 3).returncode == 0
    assert sorted(p.name for p in (out / "best").iterdir()) == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    knows = {k: training(out)[k]
             for k in ("best_val_loss", "best_steps", "stale_evaluations", "evaluations", "last_evaluated_step", "steps_done")}
    assert knows == {"best_val_loss": best, "best_steps": at, "stale_evaluations": 3, "evaluations": len(found),
                     "last_evaluated_step": len(found) - 1, "steps_done": len(found)}
    knows = {k: training(out / "best")[k] for k in ("best_steps", "stale_evaluations", "last_evaluated_step", "steps_done")}
    assert knows == {"best_steps": at, "stale_evaluations": 0, "last_evaluated_step": at, "steps_done": at}


def test_the_best_weights_are_those(corpus, tmp_path):
    """Where the last evaluation is the best, they are the last weights."""
    out = tmp_path / "run"
    done = cotan("train", "--data", corpus, *OPTIONS, *SHORT, "--patience", 3, "--out", out)
    assert done.returncode == 0 and done.stderr.splitlines()[-2].endswith(", after step 6"), done.stderr
    assert "stopped early" not in done.stderr
    assert (out / "best/model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()
    # Another run in the folder, which keeps none, removes them; what else lies there stays.
    (out / "best/mine").write_text("mine")
    assert cotan("train", "--data", corpus, *OPTIONS, *SHORT, "--out", out, "--overwrite").returncode == 0
    assert [p.name for p in (out / "best").iterdir()] == ["mine"]


def test_patience_is_resumed(patient, tmp_path):
    """From a save in its middle: the same end. At its end: it has ended. With more of it: it goes on."""
    whole, _ = patient
    out, end = tmp_path / "run", len(lines(whole))
    shutil.copytree(whole, out)
    assert cotan("train", "--resume", out, "--resume-step", checkpoints(out)[0]).returncode == 0
    for name in TENSORS:
        assert (out / name).read_bytes() == (whole / name).read_bytes()
    assert lines(out) == lines(whole) and training(out) == training(whole)
    same_best(out, whole)
    done = cotan("train", "--resume", out)
    assert done.returncode == 0 and f"\nstopped early, after step {end} of 60: " in done.stderr
    assert lines(out) == lines(whole)
    done = cotan("train", "--resume", out, "--patience", 4)
    assert done.returncode == 0 and len(lines(out)) > end, done.stderr
    assert training(out)["patience"] == 4


def test_patience_survives_a_kill(shim, corpus, patient, memory):
    whole, _ = patient
    words = ["train", "--data", corpus, *OPTIONS, *PATIENT, "--out"]
    calls = count(shim, memory / "counted", *words, memory / "counted")
    for k in range(calls, 0, -1) if EVERY else range(calls, calls // 3, -(calls // 6)):
        out = memory / f"run-{k}"
        done = faulty(shim, out, "kill", k, *words, out)
        assert done.returncode == -signal.SIGKILL, (k, done.stderr)
        if checkpoints(out):
            done = cotan("train", "--resume", out)
            assert done.returncode == 0, done.stderr
        else:
            begin_anew(out, [*words, out])
        for name in TENSORS:
            assert (out / name).read_bytes() == (whole / name).read_bytes()
        assert lines(out) == lines(whole)
        same_best(out, whole)
        assert leftovers(out) == []
        shutil.rmtree(out)


KEEPS = [*SHORT[:-1], 1, "--patience", 5, "--lr", 0.02]


@pytest.fixture(scope="module")
def keeps(corpus, tmp_path_factory):
    """A run whose best weights change with every evaluation."""
    out = tmp_path_factory.mktemp("keeps") / "run"
    done = cotan("train", "--data", corpus, *OPTIONS, *KEEPS, "--out", out)
    assert done.returncode == 0 and training(out)["best_steps"] == STEPS, done.stderr
    return out


def same_as_kept(out, keeps):
    """But for which saves are left: a failure makes one more."""
    for name in (*TENSORS, "config.json", "loss.svg"):
        assert (out / name).read_bytes() == (keeps / name).read_bytes(), name
    assert lines(out) == lines(keeps)
    assert leftovers(out) == []
    same_best(out, keeps)


@pytest.mark.parametrize("kind", ["kill", "once", "full"])
def test_a_fault_in_writing_the_best_weights(shim, corpus, keeps, memory, kind):
    """The evaluation is made again, and its weights are kept."""
    words = ["train", "--data", corpus, *OPTIONS, *KEEPS, "--out"]
    calls = count(shim, memory / "counted/best", *words, memory / "counted")
    assert calls > 40
    told = set()
    for k in range(1, calls + 1, (2 if kind == "once" else 4) * (1 if EVERY else 3)):
        out = memory / f"run-{k}"
        done = faulty(shim, out / "best", kind, k, *words, out)
        if kind == "kill":
            assert done.returncode == -signal.SIGKILL, (k, done.stderr)
        elif done.returncode:
            reason = "Input/output error" if kind == "once" else "No space left on device"
            found = re.search(rf"^cotan: {out}/best(?:/\S+)?: cannot (.*): {reason}$", done.stderr, re.M)
            assert done.returncode == 1 and found, (k, done.stderr)
            told.add(found[1])
            assert len(lines(out)) == checkpoints(out)[-1]  # saved all the same
        if checkpoints(out):
            resume(out)
        else:
            begin_anew(out, [*words, out])
        same_as_kept(out, keeps)
        assert cotan("sample", out / "best", "--max-tokens", 3).returncode == 0
        shutil.rmtree(out)
    if kind != "kill":
        assert told >= {"write", "sync", "rename into place"}


def test_a_single_fault_loses_no_step(shim, corpus, keeps, memory):
    """Of metrics, TensorBoard's file, the plot or a save: what was trained is saved where it can be, and all
    ends as if nothing had been."""
    words = ["train", "--data", corpus, *OPTIONS, *KEEPS, "--out"]
    log = memory / "counted.log"
    done = faulty(shim, memory / "counted", "", 0, *words, memory / "counted", FAULT_LOG=str(log))
    assert done.returncode == 0, done.stderr
    made = [(int(number), Path(path).name) for number, _, path, *_ in map(str.split, log.read_text().splitlines())]
    appended = [k for k, name in made if name == "metrics.jsonl" or name.startswith("events")]
    told = set()
    for k in sorted({*range(made[-1][0], 0, -1 if EVERY else -23), *appended}, reverse=True):
        out = memory / f"run-{k}"
        done = faulty(shim, out, "once", k, *words, out)
        found = re.search(r"^cotan: (\S+): cannot .*: Input/output error$", done.stderr, re.M)
        assert bool(found) == (done.returncode == 1) and done.returncode in (0, 1), (k, done.stderr)
        name = Path(found[1]).name if found else ""
        told.add(re.sub(r"\d.*", "", name))
        if name == "metrics.jsonl" or name.startswith("events"):
            if re.search("^step ", done.stderr, re.M):
                assert checkpoints(out)[-1] == len(lines(out)) > 0
            else:  # it could not begin
                assert not checkpoints(out) and not ((out / "metrics.jsonl").exists() and lines(out))
        if not done.returncode or checkpoints(out):
            resume(out)
            same_as_kept(out, keeps)
        shutil.rmtree(out, ignore_errors=True)
    assert told >= {"metrics.jsonl", "events.out.tfevents.", "model.safetensors"}


def test_nothing_to_resume(whole, corpus, tmp_path):
    def refused(message, *words):
        done = cotan("train", *words)
        assert (done.returncode, done.stderr) == (1, f"cotan: {message}\n")

    refused(f"{tmp_path}/none: cannot open: No such file or directory", "--resume", tmp_path / "none")
    start = "  hint: a run makes its first after --save-every steps: start one, with --data and --out"
    refused(f"{tmp_path}: there is no checkpoint to resume from: the folder is empty\n{start}", "--resume", tmp_path)
    other, model, begun = tmp_path / "other", tmp_path / "model", tmp_path / "begun"
    put(other / "notes.txt")
    refused(f"{other}: there is no checkpoint to resume from: it holds no run\n{start}", "--resume", other)
    model.mkdir()
    for name in ("model.safetensors", "config.json"):
        shutil.copy(whole / name, model)
    refused(f"{model}: there is no checkpoint to resume from: it holds a model, not a run\n"
            "  hint: --from fine-tunes a model, in another folder: --out", "--resume", model)
    put(begun / "metrics.jsonl")
    refused(f"{begun}: there is no checkpoint to resume from: the run in it ended before its first\n"
            "  hint: a run makes its first after --save-every steps: start it again, with --data, --out and --overwrite", "--resume", begun)
    refused(f"{whole}/checkpoints/step-4/: this is a checkpoint of a run, not its folder\n"
            f"  hint: cotan train --resume {whole.resolve()} --resume-step 4", "--resume", f"{whole}/checkpoints/step-4/")
    refused(f"{whole}/checkpoints: this is the folder of a run's checkpoints, not the run's\n"
            f"  hint: cotan train --resume {whole.resolve()}", "--resume", whole / "checkpoints")
    refused(f"{whole}: there is no checkpoint of step 5, only of: 4, 6", "--resume", whole,
            "--resume-step", 5)
    done = cotan("train", "--resume-step", 5, "--data", corpus)
    assert (done.returncode, done.stderr) == (2, "cotan: train: --resume-step needs --resume\n")


def test_another_device_is_told(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    done = cotan("train", "--resume", tmp_path / "run", "--device", "cpu")
    assert done.returncode == 0
    assert re.search(r'^cotan: the run was computed with ".*", this device computes with ".*": other bits '
                     r"than without the stop$", done.stderr, re.M), done.stderr


# -------------------------------------------------------------------------------- files of other people


def contents(folder):
    """Of all files below, and where links lead."""
    return {p.relative_to(folder): os.readlink(p) if p.is_symlink() else p.read_bytes()
            for p in sorted(folder.rglob("*")) if p.is_symlink() or p.is_file()}


def put(path, text="mine"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def other_peoples_files(out):
    """With names that look like those of saves, but are none; and links that have such names."""
    for name in ("model.safetensors.backup.tmp", "config.json.tmp.tmp", "loss.svg.tmp", "metrics.jsonl.1-1.tmp",
                 "config.json.tmp", "model.safetensors.tmp", "state.safetensors.tmp", "best/config.json.tmp",
                 "state.safetensors.-1.tmp", "notes.tmp", "best/mine.tmp", "best/config.json.old.tmp",
                 "checkpoints/experiment.tmp/results.csv", "checkpoints/step-x.tmp/model.safetensors",
                 "checkpoints/step-007.tmp/model.safetensors", "checkpoints/step-97.tmp/notes",
                 "checkpoints/step-97.tmp/inner/model.safetensors", "checkpoints/notes.tmp"):
        put(out / name)
    precious = out.parent / f"precious of {out.name}"
    for name in ("thesis.tex", "model.safetensors", "config.json.1-1.tmp"):
        put(precious / name)
    for name in ("link.tmp", "step-98.tmp"):
        (out / "checkpoints" / name).symlink_to(precious, target_is_directory=True)
    return contents(out.parent)


def left_by_a_death(out):
    for name in ("model.safetensors.12-3.tmp", "config.json.1-2.tmp", "loss.svg.1-1.tmp", "best/model.safetensors.1-0.tmp",
                 "checkpoints/step-97.tmp/model.safetensors", "checkpoints/step-97.tmp/best.json",
                 "checkpoints/step-97.tmp/state.safetensors.1-2.tmp", "checkpoints/step-99.tmp/model.safetensors"):
        put(out / name, "torn")
    return contents(out.parent)


def test_tidying_takes_what_saves_left_and_nothing_else(whole, corpus, memory):
    out = memory / "a/run"
    theirs = other_peoples_files(out)
    left_by_a_death(out)
    done = cotan("train", "--data", corpus, *OPTIONS, *SHORT, "--out", out)
    assert done.returncode == 0, done.stderr
    now = contents(out.parent)
    assert {p: now.get(p) for p in theirs} == theirs
    assert [p for p, is_what in now.items() if is_what == b"torn"] == [] and not (out / "checkpoints/step-99.tmp").exists()
    left_by_a_death(out)
    done = cotan("train", "--resume", out, "--resume-step", 4)
    assert done.returncode == 0, done.stderr
    now = contents(out.parent)
    assert {p: now.get(p) for p in theirs} == theirs
    assert b"torn" not in now.values() and not (out / "checkpoints/step-99.tmp").exists()
    for name in TENSORS:
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_nothing_is_tidied_where_nothing_begins(whole, corpus, memory):
    """In a folder that is none of a run; in one of a run, which is refused."""
    other, out = memory / "a/other", memory / "b/run"
    put(other / "weights")
    other_peoples_files(other)
    before = left_by_a_death(other)
    done = cotan("train", "--resume", other)
    assert (done.returncode, done.stderr) == (
        1, f"cotan: {other}: there is no checkpoint to resume from: it holds no run\n"
        "  hint: a run makes its first after --save-every steps: start one, with --data and --out\n")
    assert contents(other.parent) == before
    shutil.copytree(whole, out)
    other_peoples_files(out)
    before = left_by_a_death(out)
    put(memory / "text", corpus.read_text() + ".")
    for words in (["--data", corpus, *OPTIONS, *SHORT, "--out", out], ["--resume", out, "--seed", 3],
                  ["--resume", out, "--resume-step", 5], ["--resume", out, "--data", memory / "text"]):
        assert cotan("train", *words).returncode in (1, 2)
        assert contents(out.parent) == before, words


def test_a_checkpoint_that_was_moved_or_filled_by_others(whole, memory):
    """Where it goes, the link goes, or its own files; what it led to, and other files, stay."""
    out, precious = memory / "run", memory / "precious"
    shutil.copytree(whole, out)
    shutil.move(out / "checkpoints/step-6", precious)
    put(precious / "thesis.tex")
    put(out / "checkpoints/step-4/notes")
    (out / "checkpoints/step-6").symlink_to(precious, target_is_directory=True)
    before = contents(precious)
    done = cotan("train", "--resume", out, "--resume-step", 4, "--steps", 8)
    assert done.returncode == 0, done.stderr
    assert contents(precious) == before and checkpoints(out) == [6, 8]
    assert not (out / "checkpoints/step-6").is_symlink()
    assert contents(out / "checkpoints/step-4.tmp") == {Path("notes"): b"mine"}


def test_files_where_folders_would_be(patient, whole, corpus, memory):
    """Told before anything happens; a run that has no use for the folder does not mind."""
    def refused(out, name, *words):
        before = contents(out)
        done = cotan("train", *words)
        assert (done.returncode, done.stderr) == (
            1, f"cotan: {out}/{name}: exists and is not a folder\n"
            "  hint: move it away: a run has a folder of this name\n")
        assert contents(out) == before

    kept, other, new = memory / "kept", memory / "other", memory / "new"
    copy_links(patient[0], kept)
    shutil.move(kept / "best", memory / "best")
    for out in (kept, new, memory / "third"):
        put(out / "best")
    first = checkpoints(kept)[0]
    refused(kept, "best", "--resume", kept)
    refused(kept, "best", "--resume", kept, "--resume-step", first)
    refused(new, "best", "--data", corpus, *OPTIONS, *PATIENT, "--out", new)
    (kept / "best").unlink()
    assert cotan("train", "--resume", kept, "--resume-step", first).returncode == 0
    same_best(kept, memory)
    copy_links(whole, other)
    put(other / "best")
    assert cotan("train", "--resume", other, "--resume-step", 4).returncode == 0
    assert cotan("train", "--data", corpus, *OPTIONS, *SHORT, "--out", new).returncode == 0
    for out in (other, new):
        same_end(out, whole)
        assert (out / "best").read_text() == "mine"
    put(memory / "third/checkpoints")
    refused(memory / "third", "checkpoints", "--data", corpus, *OPTIONS, *SHORT, "--out", memory / "third")
    refused(memory / "third", "checkpoints", "--resume", memory / "third")


def test_a_link_in_the_way_of_a_save(corpus, memory):
    """Nothing is written where it leads."""
    out = memory / "run"
    put(memory / "precious/model.safetensors")
    (out / "checkpoints").mkdir(parents=True)
    (out / "checkpoints/step-2.tmp").symlink_to(memory / "precious")
    done = cotan("train", "--data", corpus, *OPTIONS, *SHORT, "--out", out)
    assert done.returncode == 1 and done.stderr.endswith(
        f"cotan: {out}/checkpoints/step-2.tmp: it is in the way of a save, which makes a folder\n"
        "  hint: move it away\n"), done.stderr
    assert contents(memory / "precious") == {Path("model.safetensors"): b"mine"}


# -------------------------------------------------------------------------------------- killed, stopped


@pytest.mark.parametrize("device", ["ref", "cpu"])
def test_killed_at_random_moments(corpus, tmp_path, device):
    env = {"COTAN_DEVICE": device}
    words = ["train", "--data", corpus, *OPTIONS, "--steps", 150, "--save-every", 7, "--eval-every", 40]
    assert cotan(*words, "--out", tmp_path / "whole", env=env).returncode == 0
    seed = random.randrange(10**9)
    print("seed", seed)
    draw, out = random.Random(seed), tmp_path / "run"
    moments = sorted(draw.sample(range(8, 140), 2))
    words += ["--out", out]
    for moment in moments:
        process = subprocess.Popen([str(COTAN), *map(str, words)], stderr=subprocess.DEVNULL,
                                   env=os.environ | env)
        metrics = out / "metrics.jsonl"
        while process.poll() is None:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= moment:
                break
            time.sleep(0.001)
        time.sleep(draw.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        words = ["train", "--resume", out]
    os.environ["COTAN_DEVICE"] = device
    try:
        resume(out, 150)
    finally:
        os.environ["COTAN_DEVICE"] = "ref"
    same_end(out, tmp_path / "whole", 150, (147, 150))


def test_interrupted(corpus, tmp_path):
    words = ["train", "--data", corpus, *OPTIONS, "--steps", 400, "--save-every", 200, "--eval-every", 90]
    assert cotan(*words, "--out", tmp_path / "whole").returncode == 0
    out = tmp_path / "a run"
    command, stops = [str(COTAN), *map(str, words), "--out", str(out)], 0
    while True:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not (out / "metrics.jsonl").exists():
            time.sleep(0.001)
        time.sleep(0.12)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        if process.returncode != 130 or stops == 4:
            break
        stops += 1
        done = len(lines(out))
        assert said.endswith(f"train: stopped after {done} of 400 steps, and saved\n"
                             f"{COTAN} sample '{out}'\n{COTAN} train --resume '{out}'\n")
        assert checkpoints(out)[-1] == done
        command = [str(COTAN), "train", "--resume", str(out)]
    assert stops > 0
    if process.returncode == 130:
        resume(out, 400)
    for name in TENSORS:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert lines(out) == lines(tmp_path / "whole")


def test_two_at_once(corpus, tmp_path):
    out = tmp_path / "run"
    words = ["train", "--data", corpus, *OPTIONS, "--steps", 10**6, "--save-every", 2, "--out", out]
    process = subprocess.Popen([str(COTAN), *map(str, words)], stderr=subprocess.DEVNULL)
    while process.poll() is None and len(checkpoints(out)) < 2:
        time.sleep(0.01)
    message = f"{waits(out)}cotan: {out}: another process is training in this folder\n"
    again = [subprocess.Popen([str(COTAN), *map(str, second)], stderr=subprocess.PIPE, text=True)
             for second in ([*words, "--overwrite"], ["train", "--resume", out])]
    for second in again:
        said = second.communicate(timeout=60)[1]
        assert second.returncode == 1 and said.endswith(message)
    process.kill()
    process.wait()
    assert checkpoints(out)


def waits(out):
    return f"cotan: another process is training in {out}; this one will try for up to 5 seconds\n"


def test_a_process_that_is_ending_is_waited_for(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    held = os.open(out, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    threading.Timer(0.5, os.close, [held]).start()
    done = cotan("train", "--resume", out)
    assert done.returncode == 0 and done.stderr.startswith(waits(out))
    assert "all 6 steps are done; more --steps continue it\n" in done.stderr


# ------------------------------------------------------------------------- every call of a save, in turn


class Seen:
    """The bytes of each checkpoint that any disturbed run made: always the same ones."""

    def __init__(self):
        self.bytes = {}

    def check(self, out):
        for step in checkpoints(out):
            folder = out / f"checkpoints/step-{step}"
            assert sorted(os.listdir(folder)) == ["config.json", *TENSORS]
            found = [(folder / name).read_bytes() for name in TENSORS]
            assert self.bytes.setdefault(step, found) == found
        # The folder's own pair: no model that is newer than the state beside it.
        steps = [{found[i]: step for step, found in self.bytes.items()} for i in (0, 1)]
        model, state = (out / name for name in TENSORS)
        if model.exists():
            assert steps[0][model.read_bytes()] <= steps[1][state.read_bytes()]


def begin_anew(out, words):
    """Where a run died before its first save: what it wrote until then is replaced by who says so."""
    there = [name for name in ("metrics.jsonl", "best/model.safetensors", "best/config.json")
             if (out / name).exists() and (out / name).stat().st_size]
    events = sorted(path.name for path in out.glob("events.out.tfevents.*"))
    if there and events:
        there.append(events[0] if len(events) == 1 else f"{len(events)} files events.out.tfevents.*")
    done = cotan(*words)
    if there:
        assert (done.returncode, done.stderr) == (
            2, f"cotan: train: in {out} is what would be lost: {', '.join(there)}\n"
               "  hint: --overwrite replaces it, another --out keeps it\n")
        done = cotan(*words, "--overwrite")
        assert f"\ncotan: what is in {out} is replaced at the first save: {', '.join(there)}\n" in done.stderr
    assert done.returncode == 0, done.stderr


def finish(out, corpus, whole):
    """Resumes, where there is a checkpoint; begins anew, where there is none."""
    if checkpoints(out):
        resume(out)
    else:
        done = cotan("train", "--resume", out)
        assert done.returncode == 1 and "there is no checkpoint to resume from" in done.stderr
        begin_anew(out, ["train", "--data", corpus, *OPTIONS, *SHORT, "--out", out])
    same_end(out, whole)


def moments(calls):
    """Every second call from the second save on, of those before every twelfth, where not all is tested; the
    last first, so that all checkpoints are met early."""
    return [k for k in range(calls, 0, -1) if EVERY or k % 12 == 0 or (k > 0.55 * calls and k % 2 == 0)]


@pytest.mark.parametrize("links", ["all", "none"])
def test_dies_at_the_kth_call(shim, corpus, whole, memory, links):
    words = ["train", "--data", corpus, *OPTIONS, *SHORT, "--out"]
    calls = count(shim, memory / "counted", *words, memory / "counted")
    assert calls > 100
    seen, reached = Seen(), set()
    for k in moments(calls)[::1 if EVERY else 2 if links == "all" else 7]:
        out = memory / f"run-{k}"
        done = faulty(shim, out, "kill", k, *words, out, FAULT_LINKS=links)
        assert done.returncode == -signal.SIGKILL, (k, done.stderr)
        if out.exists():
            seen.check(out)
            reached.add(checkpoints(out)[-1] if checkpoints(out) else 0)
            finish(out, corpus, whole)
            shutil.rmtree(out)
    assert reached == {0, *SAVES}


def test_dies_at_the_kth_call_of_resuming(shim, corpus, whole, memory):
    """From what a process left that died between a checkpoint and its names in the folder."""
    words = ["train", "--data", corpus, *OPTIONS, *SHORT, "--out"]
    left, at, end = memory / "left", 1, count(shim, memory / "whole", *words, memory / "whole")

    def dies_at(k):
        shutil.rmtree(left, ignore_errors=True)
        done = faulty(shim, left, "kill", k, *words, left)
        assert done.returncode == -signal.SIGKILL
        return left.exists() and checkpoints(left)[-1:] >= [4]

    while at < end:  # the first call at which that checkpoint is there
        middle = (at + end) // 2
        at, end = (at, middle) if dies_at(middle) else (middle + 1, end)
    while not dies_at(at) or leftovers(left) or \
            os.path.samefile(left / TENSORS[1], left / "checkpoints/step-4" / TENSORS[1]):
        at += 1
    assert checkpoints(left)[-1] == 4
    (left / "state.safetensors.1-1.tmp").write_text("torn")
    (left / "checkpoints/step-6.tmp").mkdir()
    (left / "checkpoints/step-6.tmp/model.safetensors").write_text("torn")
    shutil.copytree(left, memory / "counted")
    calls = count(shim, memory / "counted", "train", "--resume", memory / "counted")
    for k in range(1, calls + 1, 1 if EVERY else 9):
        out = memory / f"again-{k}"
        shutil.copytree(left, out)
        done = faulty(shim, out, "kill", k, "train", "--resume", out)
        assert done.returncode == -signal.SIGKILL, (k, done.stderr)
        resume(out)
        same_end(out, whole)
        shutil.rmtree(out)


def test_the_disk_is_full_from_the_kth_call_on(shim, corpus, whole, memory):
    words = ["train", "--data", corpus, *OPTIONS, *SHORT, "--out"]
    calls = count(shim, memory / "counted", *words, memory / "counted")
    seen, sentences = Seen(), set()
    for k in moments(calls)[::1 if EVERY else 3]:
        out = memory / f"run-{k}"
        done = faulty(shim, out, "full", k, *words, out)
        if done.returncode == 0:  # nothing but removals was left to do
            same_end(out, whole)
            continue
        assert done.returncode == 1, (k, done.stderr)
        told = re.search(r"^cotan: (\S+): (cannot .*): No space left on device$", done.stderr, re.M)
        assert told, done.stderr
        sentences.add(told[2])
        if out.exists():
            assert leftovers(out) == [], k
            seen.check(out)
            saved = checkpoints(out)
            hint = f"  hint: the checkpoint of step {saved[-1]} is complete: " if saved else None
            if "/checkpoints/step-" in told[1] and ".tmp" in told[1] and saved:
                assert done.stderr.splitlines()[-1].startswith(hint)
            finish(out, corpus, whole)
            shutil.rmtree(out)
    assert {"write", "sync", "rename into place", "create the folder"} <= \
        {s.removeprefix("cannot ") for s in sentences}


# --------------------------------------------------------------------------------------------- damage


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def offsets(path):
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + n]), 8 + n, len(data)


def test_a_flipped_bit_names_the_tensor_and_offers_the_checkpoint_before(whole, memory):
    seed = random.randrange(10**9)
    print("seed", seed)
    draw, out = random.Random(seed), memory / "run"
    for turn in range(24 if EVERY else 8):
        shutil.copytree(whole, out)
        for name in TENSORS:  # further names of the same files, as the run had them
            (out / name).unlink()
            os.link(out / "checkpoints/step-6" / name, out / name)
        name = TENSORS[turn % 2]
        header, begin, size = offsets(out / name)
        bit = draw.randrange(begin * 8, size * 8)
        tensor = next(t for t, e in header.items() if t != "__metadata__" and
                      e["data_offsets"][0] <= bit // 8 - begin < e["data_offsets"][1])
        flip(out / name, bit)
        done = cotan("train", "--resume", out)
        assert done.returncode == 1 and re.fullmatch(
            rf'cotan: {out}/checkpoints/step-6/{name}: safetensors: tensor "{re.escape(tensor)}" is damaged: '
            r"the CRC-32C of its bytes is [0-9a-f]{8}, not [0-9a-f]{8}\n"
            rf"  hint: the checkpoint of step 4 is complete: cotan train --resume {out} --resume-step 4\n",
            done.stderr), done.stderr
        for words in (["info", out / name], ["sample", out])[:2 - turn % 2]:
            told = cotan(*words)
            assert told.returncode == 1 and f'tensor "{tensor}" is damaged: ' in told.stderr
            if words[0] == "sample":
                older = out / "checkpoints/step-4"
                assert told.stderr.endswith(f"\n  hint: the checkpoint of step 4 is complete: cotan sample {older}\n")
                written = cotan("sample", older, "--max-tokens", 5)
                assert written.returncode == 0 and len(written.stdout) >= 5 and not written.stderr
        if turn < 2:
            done = cotan("train", "--resume", out, "--resume-step", 4)
            assert done.returncode == 0, done.stderr
            same_end(out, whole)
        shutil.rmtree(out)


def test_a_damaged_copy_in_the_folder_is_noticed_too(whole, tmp_path):
    out = tmp_path / "a run"
    shutil.copytree(whole, out)  # no links any more
    flip(out / "state.safetensors", 8 * (out / "state.safetensors").stat().st_size - 1)
    done = cotan("train", "--resume", out)
    assert done.returncode == 1
    assert f'{out}/state.safetensors: safetensors: tensor "' in done.stderr
    assert done.stderr.endswith(f"  hint: the checkpoint of step 6 is complete: cotan train --resume '{out}' --resume-step 6\n")
    assert cotan("train", "--resume", out, "--resume-step", 6).returncode == 0
    same_end(out, whole)


def same_json(path, before):
    """1e-05 or 1E-05: nothing has changed."""
    try:
        return path.suffix == ".json" and json.loads(path.read_bytes()) == json.loads(before)
    except ValueError:
        return False


def test_any_flipped_bit_is_noticed(whole, memory):
    """In headers and config.json too."""
    seed = random.randrange(10**9)
    print("seed", seed)
    draw, out = random.Random(seed), memory / "run"
    for turn in range(90 if EVERY else 30):
        shutil.copytree(whole, out)
        path = out / "checkpoints/step-6" / (*TENSORS, "config.json")[turn % 3]
        end = path.stat().st_size if path.suffix == ".json" else offsets(path)[1]
        bit = draw.randrange(end * 8)
        kept = path.read_bytes()
        flip(path, bit)
        done = cotan("train", "--resume", out)
        assert (done.returncode == 1 and "hint: the checkpoint of step 4 is complete" in done.stderr) or \
            same_json(path, kept), (turn, bit, done.stderr)
        shutil.rmtree(out)


def copy_links(whole, out):
    """Files that are one stay one."""
    subprocess.run(["cp", "-a", whole, out], check=True)


def damage_best(path):
    """What is said of a bit in its last tensor."""
    header, begin, size = offsets(path)
    flip(path, 8 * size - 1)
    tensor = next(t for t, e in header.items() if t != "__metadata__" and e["data_offsets"][1] == size - begin)
    return (rf'safetensors: tensor "{re.escape(tensor)}" is damaged: the CRC-32C of its bytes is [0-9a-f]{{8}}, '
            r"not [0-9a-f]{8}")


WITHOUT = r"the run continues without the best weights so far, best/ will keep those of the evaluations to come"


def same_but_for_best(out, whole):
    for name in TENSORS:
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    assert lines(out) == lines(whole) and leftovers(out) == []


def test_damaged_best_weights_are_done_without(patient, memory):
    """One damaged file is that of all saves. Patience needs the loss alone: the run ends where it would have."""
    whole, _ = patient
    out, (first, last) = memory / "run", checkpoints(whole)
    copy_links(whole, out)
    for step in (first, last):
        assert os.path.samefile(out / "best/model.safetensors", out / f"checkpoints/step-{step}/best.safetensors")
    damage = damage_best(out / "best/model.safetensors")
    best, found = training(out)["best_val_loss"], lines(whole)
    # At its end: there is nothing to keep any more.
    for _ in range(2):
        done = cotan("train", "--resume", out)
        assert done.returncode == 0 and re.search(
            rf"\ncotan: {out}/checkpoints/step-{last}/best\.safetensors: {damage}; {WITHOUT}\n"
            rf"resuming at step {last}\n(?:.*\n)*"
            rf"stopped early, after step {last} of 60: the validation loss did not fall below {best:.4f} in 3 evaluations\n"
            rf"memory: .*\nheld-out loss: \S+ nats a byte, \S+ nats a character\n"
            rf"{COTAN} sample {out}\n$", done.stderr), done.stderr
        same_but_for_best(out, whole)
        assert not (out / "best").exists()
    # From an older save: of the evaluations behind it, the best is kept.
    done = cotan("train", "--resume", out, "--resume-step", first)
    assert done.returncode == 0 and re.search(
        rf"^cotan: {out}/checkpoints/step-{first}/best\.safetensors: {damage}; {WITHOUT}\n"
        rf"resuming at step {first}$", done.stderr, re.M), done.stderr
    same_but_for_best(out, whole)
    evaluated = [m["val_loss"] for m in found[first:] if "val_loss" in m]
    assert training(out)["best_val_loss"] == training(out / "best")["best_val_loss"] == min(evaluated) > best
    assert training(out)["stale_evaluations"] == training(whole)["stale_evaluations"]
    assert f"did not fall below {best:.4f} in 3 evaluations" in done.stderr
    assert done.stderr.endswith(f"\n{COTAN} sample {out}/best\n")
    assert cotan("sample", out / "best", "--max-tokens", 3).returncode == 0
    assert os.path.samefile(out / "best/model.safetensors", out / f"checkpoints/step-{last}/best.safetensors")
    done = cotan("train", "--resume", out)
    assert done.returncode == 0 and "damaged" not in done.stderr


# What counts as better is so much that it surely stops early.
SPARSE = ["--steps", 60, "--save-every", 2, "--eval-every", 7, "--patience", 3, "--min-delta", 0.3, "--lr", 0.3]


def test_best_weights_are_lost_and_the_process_too(shim, corpus, memory):
    """A save before the next evaluation knows that there are none."""
    whole, left = memory / "whole", memory / "left"
    words = ["train", "--data", corpus, *OPTIONS, *SPARSE, "--out"]
    done = cotan(*words, whole)
    assert done.returncode == 0 and "stopped early" in done.stderr, done.stderr
    copy_links(whole, left)
    first = checkpoints(whole)[0]
    damage_best(left / f"checkpoints/step-{first}/best.safetensors")
    again = ["train", "--resume-step", first, "--resume"]
    copy_links(left, memory / "counted")
    calls = count(shim, memory / "counted", *again, memory / "counted")
    for k in range(1, calls + 1, 1 if EVERY else 13):
        out = memory / f"run-{k}"
        copy_links(left, out)
        done = faulty(shim, out, "kill", k, *again, out)
        assert done.returncode == -signal.SIGKILL, (k, done.stderr)
        done = cotan("train", "--resume", out)
        assert done.returncode == 0, (k, done.stderr)
        same_but_for_best(out, whole)
        shutil.rmtree(out)


@pytest.mark.parametrize("name", ["best.safetensors", "best.json"])
def test_damaged_best_weights_of_which_the_folder_has_others(patient, tmp_path, name):
    """A copy without links: nothing is lost."""
    whole, _ = patient
    out, (first, last) = tmp_path / "run", checkpoints(whole)
    shutil.copytree(whole, out)
    path = out / f"checkpoints/step-{first}" / name
    if name == "best.json":
        path.write_text(re.sub(r'("stale_evaluations": ?)0', r"\g<1>1", path.read_text()))
        damage = r"the file is damaged or was changed: the CRC-32C of its values is [0-9a-f]{8}, not [0-9a-f]{8}"
    else:
        damage = damage_best(path)
    done = cotan("train", "--resume", out, "--resume-step", first)
    assert done.returncode == 0 and re.search(
        rf"^cotan: {path}: {damage}; the same weights in best/ are complete\nresuming at step {first}$",
        done.stderr, re.M), done.stderr
    same_but_for_best(out, whole)
    same_best(out, whole)
    assert training(out) == training(whole)
    # The folder's are others: they go, as ever.
    shutil.rmtree(out)
    shutil.copytree(whole, out)
    damage_best(out / f"checkpoints/step-{last}/best.safetensors")
    shutil.copy(out / "model.safetensors", out / "best/model.safetensors")
    shutil.copy(out / "config.json", out / "best/config.json")
    (out / "best/config.json").write_text((out / "config.json").read_text()[:-9])
    done = cotan("train", "--resume", out)
    assert done.returncode == 0 and re.search(WITHOUT, done.stderr) and not (out / "best").exists(), done.stderr


def test_none_is_whole(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    for step in (4, 6):
        path = out / f"checkpoints/step-{step}/model.safetensors"
        flip(path, 8 * path.stat().st_size - 1)
    done = cotan("train", "--resume", out)
    assert done.returncode == 1 and done.stderr.endswith("\n  hint: no checkpoint of this run is complete\n")


def test_damaged_metrics(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    text = (out / "metrics.jsonl").read_text()
    (out / "metrics.jsonl").write_text(text.replace('"step": 2', '"stop": 2'))
    done = cotan("train", "--resume", out)
    assert done.returncode == 1 and done.stderr.endswith(
        f'cotan: {out}/metrics.jsonl: line 3 has no whole number "step"\n'
        "  hint: move the file away to continue without it\n")
    # Nothing of what an older save would replace is gone.
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and "tfevents" not in p.name}
    done = cotan("train", "--resume", out, "--resume-step", 4)
    assert done.returncode == 1 and 'metrics.jsonl: line 3 has no whole number "step"' in done.stderr
    assert "resuming" not in done.stderr and checkpoints(out) == [4, 6]
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and "tfevents" not in p.name} == before
    (out / "metrics.jsonl").unlink()
    assert cotan("train", "--resume", out, "--resume-step", 4).returncode == 0
    assert [m["step"] for m in lines(out)] == [4, 5]
