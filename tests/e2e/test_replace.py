"""Runs that take the place of another (--overwrite), and are killed, or fail, on the way: one of the two is there."""
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from test_resume import (COTAN, EVERY, KEEPS, OPTIONS, SHORT, checkpoints, contents, corpus, cotan,  # noqa: F401
                         count, faulty, keeps, lines, memory, on_ref, put, same_as_kept, same_end, shim, whole)


def files(out):
    """What is there, but for a run that has not taken the other's place yet."""
    return {path.relative_to(out): path.read_bytes() for path in out.rglob("*")
            if path.is_file() and ".cotan-next.tmp" not in path.parts}


def others(out):
    """Files that no run wrote, which stay."""
    for name in ("notes.txt", "best/mine.txt", "checkpoints/step-one.txt"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("mine")


def one_of_both(out, before, model, whole, same_as_new):
    """The old run, byte for byte and as resumable as before, or the new one, which can be resumed to its end."""
    (old := files(out)).pop(Path("loss.svg"), None)
    name = Path("model.safetensors")
    if (out / "metrics.jsonl").exists() and old.get(name) == model:  # never the old one's beside the new one's
        assert old[Path("metrics.jsonl")] == before[Path("metrics.jsonl")]
    replaced = (out / ".cotan-next").exists() or old.get(name) != model
    if not replaced:
        assert files(out) == before
    done = cotan("train", "--resume", out)
    assert done.returncode == 0, done.stderr
    if replaced:
        same_as_new(out, whole)
        assert checkpoints(out)[-1] == len(lines(out))
        assert [path.read_text() for path in out.rglob("*.txt")] == ["mine"] * 3
        assert len(list(out.glob("events.*"))) <= 2  # its own, of both starts
    else:
        assert "all 4 steps are done" in done.stderr
        assert {k: v for k, v in files(out).items() if k in before} == before
    assert not list(out.glob(".cotan-next*"))
    return replaced


@pytest.mark.parametrize("kind", ["kill", "full", "once"])
@pytest.mark.parametrize("best", ["of the old", "of the new"])
def test_replacing_a_run(shim, corpus, whole, keeps, memory, kind, best):
    """From the k-th call on: one of the two is there."""
    old, words = memory / "old", ["train", "--data", corpus, *OPTIONS, "--out"]
    begun = cotan(*words, old, "--steps", 4, "--save-every", 2, "--lr", 0.03,
                  *(["--patience", 4] if best == "of the old" else []))
    assert begun.returncode == 0, begun.stderr
    others(old)
    before, model = files(old), (old / "model.safetensors").read_bytes()
    new, same = (whole, same_end) if best == "of the old" else (keeps, same_as_kept)
    words = [*words[:-1], *(SHORT if best == "of the old" else KEEPS), "--overwrite", "--out"]
    out = memory / "run"
    shutil.copytree(old, out)
    calls, seen = count(shim, out, *words, out), set()
    same(out, new)
    assert calls > 100
    for k in range(1, calls + 1, 1 if EVERY else 23 if kind == "kill" else 61):
        shutil.rmtree(out)
        shutil.copytree(old, out)
        done = faulty(shim, out, kind, k, *words, out)
        assert done.returncode == -signal.SIGKILL if kind == "kill" else done.returncode in (0, 1), (k, done.stderr)
        if kind != "kill":
            assert not list(out.glob(".cotan-next.tmp")), k
        if kind == "once" and same == same_end:  # after a fault it saves where it is, and is resumed from there
            seen.add(one_of_both(out, before, model, new, lambda out, new: same_end(out, new, saves=checkpoints(out))))
        else:
            seen.add(one_of_both(out, before, model, new, same))
    assert seen == {False, True}


def test_nothing_is_replaced_before_there_is_something_in_its_place(corpus, whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    before = files(out)
    words = ["train", "--data", corpus, *OPTIONS, *SHORT, "--overwrite", "--out", out]
    told = f"\ncotan: the run in {out}, of 6 steps, is replaced at the first save\n"
    env = {"COTAN_CC": "/no/such/compiler", "COTAN_CACHE_DIR": str(tmp_path / "cache"), "COTAN_DEVICE": "cpu"}
    done = cotan(*words, env=env)
    assert done.returncode == 1 and told in done.stderr and "/no/such/compiler" in done.stderr, done.stderr
    assert files(out) == before and not list(out.glob(".*"))
    # Who stops at once has trained nothing.
    large = ["--layers", 4, "--heads", 2, "--width", 64, "--context", 64, "--batch", 8, "--eval-batches", 0]
    words = ["train", "--data", corpus, *large, *SHORT, "--overwrite", "--out", out]
    process = subprocess.Popen([str(COTAN), *map(str, words)], stderr=subprocess.PIPE, text=True)
    said = process.stderr.readline() + process.stderr.readline()
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and told in said
    assert rest == f"train: stopped before the first step: what is in {out} stays\n"
    assert files(out) == before and not list(out.glob(".*"))


@pytest.mark.parametrize("name", ["checkpoints", "best"])
def test_a_run_that_lies_on_two_disks_is_not_replaced(corpus, keeps, memory, tmp_path, name):
    """A folder of its, moved to another disk and linked: what grows beside the run cannot move in there."""
    if memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other disk")
    out = tmp_path / "run"
    shutil.copytree(keeps, out)
    shutil.move(out / name, memory / name)
    (out / name).symlink_to(memory / name, target_is_directory=True)
    before, there = contents(out), contents(memory)
    refusal = (f"cotan: train: what is in {out} cannot be replaced: {out}/{name} is on another disk or mount\n"
               "  hint: another --out keeps it; where all is on one, it can be replaced\n")
    done = cotan("train", "--data", corpus, *OPTIONS, *SHORT, "--overwrite", "--out", out)
    assert (done.returncode, done.stderr) == (2, refusal)
    assert (contents(out), contents(memory)) == (before, there)
    # Nor by one that was whole before the folder moved: both are kept.
    shutil.copytree(keeps, out / ".cotan-next")
    shutil.rmtree(out / ".cotan-next/checkpoints/step-4")
    before = contents(out)
    done = cotan("train", "--resume", out)
    assert (done.returncode, done.stderr) == (2, refusal)
    assert (contents(out), contents(memory)) == (before, there)
    (out / name).unlink()
    shutil.copytree(memory / name, out / name)
    done = cotan("train", "--resume", out)
    assert done.returncode == 0 and not (out / ".cotan-next").exists(), done.stderr
    same_as_kept(out, keeps)


@pytest.mark.parametrize("name", ["checkpoints", "best"])
def test_a_run_with_a_mount_in_it_is_not_replaced(corpus, keeps, memory, name):
    """A folder of the same disk, as a container has its volumes: it has that disk's number, and is another mount."""
    out, volume = memory / "run", memory / "volume"
    shutil.copytree(keeps, out)
    shutil.move(out / name, volume)
    (out / name).mkdir()

    def mounted(*words):
        bind = 'mount --bind "$1" "$2" || exit 99; shift 2; exec "$@"'
        return subprocess.run(["unshare", "-rm", "sh", "-c", bind, "sh", volume, out / name, *map(str, words)],
                              capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)

    if not shutil.which("unshare") or mounted("true").returncode:
        pytest.skip("nothing can be mounted here")
    before, there = contents(out), contents(volume)
    done = mounted(COTAN, "train", "--data", corpus, *OPTIONS, *SHORT, "--overwrite", "--out", out)
    assert (done.returncode, done.stderr) == (
        2, f"cotan: train: what is in {out} cannot be replaced: {out}/{name} is on another disk or mount\n"
           "  hint: another --out keeps it; where all is on one, it can be replaced\n")
    assert (contents(out), contents(volume)) == (before, there)
    # Resumed it is like any other.
    done = mounted(COTAN, "train", "--resume", out)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(out / name)
    shutil.move(volume, out / name)
    same_as_kept(out, keeps)


def test_a_run_beside_whose_saves_others_put_files(corpus, whole, memory):
    """Under the very names that a save has while it is removed."""
    out = memory / "run"
    shutil.copytree(whole, out)
    saves = out / "checkpoints"
    put(saves / "step-4.tmp/notes.txt")
    put(saves / "step-4.2.tmp", "a file")
    put(saves / "step-4/notes.txt", "more")

    def of_others():
        return {str(path): text for path, text in contents(saves).items() if ".tmp" in str(path)}

    theirs = {"step-4.tmp/notes.txt": b"mine", "step-4.2.tmp": b"a file", "step-4.3.tmp/notes.txt": b"more"}
    done = cotan("train", "--data", corpus, *OPTIONS, "--steps", 6, "--save-every", 3, "--overwrite", "--out", out)
    assert done.returncode == 0, done.stderr
    assert of_others() == theirs and checkpoints(out) == [3, 6]
    # What was being removed when its process died goes; what is no run's stays.
    put(saves / "step-6.2.tmp/model.safetensors", "torn")
    for name in ("step-6.02.tmp", "step-6.1.tmp", "step-06.2.tmp", "step-6.x.tmp"):
        put(saves / name / "model.safetensors")
        theirs[f"{name}/model.safetensors"] = b"mine"
    done = cotan("train", "--resume", out)
    assert done.returncode == 0, done.stderr
    assert of_others() == theirs and not (saves / "step-6.2.tmp").exists()


def test_events_go_only_when_it_was_said(corpus, memory):
    """Files of TensorBoard's beside something else that would be replaced may be those of another program."""
    out, name = memory / "run", "events.out.tfevents.1700000000.myhost.4321.0"
    put(out / "config.json")
    put(out / name)
    words = ["train", "--data", corpus, *OPTIONS, *SHORT, "--out", out]

    def replaces(names):
        before = contents(out)
        done = cotan(*words)
        assert (done.returncode, done.stderr) == (
            2, f"cotan: train: in {out} is what would be lost: {names}\n"
               "  hint: --overwrite replaces it, another --out keeps it\n")
        assert contents(out) == before
        done = cotan(*words, "--overwrite")
        assert done.returncode == 0 and done.stderr.splitlines()[1] == (
            f"cotan: what is in {out} is replaced at the first save: {names}"), done.stderr
        assert not list(out.glob("*.myhost.*")) and len(list(out.glob("events.*"))) == 1

    replaces(f"config.json, {name}")
    shutil.rmtree(out)
    put(out / "config.json")
    for process in range(3):
        put(out / f"events.out.tfevents.1700000000.myhost.{process}.0")
    replaces("config.json, 3 files events.out.tfevents.*")
    # Beside nothing else they are left alone.
    shutil.rmtree(out)
    put(out / name)
    done = cotan(*words)
    assert done.returncode == 0 and (out / name).read_text() == "mine", done.stderr
