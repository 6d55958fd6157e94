"""Best weights that a save of a run has no more, when it is resumed."""
import os
import shutil

import pytest

from test_resume import (COTAN, OPTIONS, SHORT, WITHOUT, checkpoints, contents, copy_links, corpus, cotan,  # noqa: F401
                         damage_best, memory, on_ref, patient, put, same_best, same_but_for_best, same_end, training,
                         whole)


@pytest.mark.parametrize("names", [["best.safetensors"], ["best.json"], ["best.safetensors", "best.json"]])
def test_best_weights_that_a_save_has_no_more(patient, memory, names):
    """Where best/ holds them, it stays; where it does not, and a name tells that there were some, they are lost."""
    whole, _ = patient
    out, last = memory / "run", checkpoints(whole)[-1]
    copy_links(whole, out)
    for name in names:
        (out / f"checkpoints/step-{last}" / name).unlink()
    missing = (f"cotan: {out}/checkpoints/step-{last}/best.safetensors: cannot open: No such file or directory; "
               if names == ["best.safetensors"] else None)
    done = cotan("train", "--resume", out)
    said = f"\n{missing}the same weights in best/ are whole\nresuming" if missing else "\nresuming"
    assert done.returncode == 0 and f"{said} at step {last}\n" in done.stderr, done.stderr
    assert missing or "best/ are whole" not in done.stderr
    same_but_for_best(out, whole)
    same_best(out, whole)
    assert training(out) == training(whole)
    for name, other in ("best.safetensors", "model.safetensors"), ("best.json", "config.json"):
        assert os.path.samefile(out / f"checkpoints/step-{last}" / name, out / "best" / other)
    if missing:
        (out / f"checkpoints/step-{last}/best.safetensors").unlink()
        damage_best(out / "best/model.safetensors")
        done = cotan("train", "--resume", out)
        assert done.returncode == 0 and f"\n{missing}{WITHOUT}\nresuming at step {last}\n" in done.stderr, done.stderr
        same_but_for_best(out, whole)
        assert not (out / "best").exists()


@pytest.mark.parametrize("lr, best, step", [(0.001, 6, 4), (3, 0, 6)])
def test_a_folder_of_that_name_is_not_the_runs(corpus, memory, lr, best, step):
    """In a run without patience. Of another loss than the best, or of other weights beside that loss."""
    out, longer = memory / "run", memory / "longer"
    words = ["train", "--data", corpus, *OPTIONS, *SHORT, "--lr", lr]
    assert cotan(*words, "--out", out).returncode == 0 and training(out)["best_steps"] == best
    shutil.copytree(out, longer)
    shutil.copytree(out / f"checkpoints/step-{step}", out / "best")
    put(out / "best/notes.txt")
    before = contents(out / "best")
    for run in (out, longer):
        done = cotan("train", "--resume", run, "--steps", 8)
        said = done.stderr.splitlines()
        assert done.returncode == 0 and said[-2].endswith(" nats a character") and said[-1] == f"{COTAN} sample {run}"
    assert contents(out / "best") == before
    shutil.rmtree(out / "best")
    same_end(out, longer, 8, (6, 8))
    assert [path for path in out.rglob("best*")] == []


def test_the_copy_of_a_save_is_not_the_best_weights(patient, memory):
    """In a run with patience, whose saves have lost their names of them: it begins anew with the next evaluation."""
    out, last = memory / "run", checkpoints(patient[0])[-1]
    copy_links(patient[0], out)
    for name in ("best.safetensors", "best.json"):
        (out / f"checkpoints/step-{last}" / name).unlink()
    shutil.rmtree(out / "best")
    shutil.copytree(out / f"checkpoints/step-{last}", out / "best")
    assert training(out / "best") == training(out) and training(out)["best_steps"] < last
    done = cotan("train", "--resume", out)
    best = training(out / "best")
    assert done.returncode == 0 and best["steps_done"] == best["best_steps"] >= last, done.stderr
    assert done.stderr.splitlines()[-2].endswith(f", after step {best['best_steps']}")


def test_best_weights_of_later_steps_go(whole, memory):
    """Those of a save that goes with them; the one that stays is from before the run had patience."""
    out = memory / "run"
    shutil.copytree(whole, out)
    done = cotan("train", "--resume", out, "--steps", 8, "--patience", 5)
    assert done.returncode == 0 and checkpoints(out) == [6, 8] and (out / "best").exists(), done.stderr
    done = cotan("train", "--resume", out, "--resume-step", 6)
    assert done.returncode == 0 and not (out / "best").exists(), done.stderr
    same_end(out, whole, saves=(6,))
