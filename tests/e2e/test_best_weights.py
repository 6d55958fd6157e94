"""Best weights that a save of a run has no more, when it is resumed."""
import os
import shutil

import pytest

from test_resume import (COTAN, KEEPS, OPTIONS, SHORT, TENSORS, WITHOUT, checkpoints, contents, copy_links, corpus, cotan,  # noqa: F401
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
    said = f"\n{missing}the same weights in best/ are complete\nresuming" if missing else "\nresuming"
    assert done.returncode == 0 and f"{said} at step {last}\n" in done.stderr, done.stderr
    assert missing or "best/ are complete" not in done.stderr
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


def test_what_a_dead_process_left_is_no_part_of_a_save(patient, whole, corpus, memory):
    """Behind a link `checkpoints`, where nothing is tidied: a run without best weights has none in its saves."""
    out, elsewhere = memory / "run", memory / "elsewhere"
    last = patient[0] / f"checkpoints/step-{checkpoints(patient[0])[-1]}"
    shutil.copytree(last, elsewhere / "step-4.tmp")
    put(elsewhere / "step-4.tmp/model.safetensors.12-3.tmp", "torn")
    put(elsewhere / "step-4.tmp/notes.txt")
    out.mkdir()
    (out / "checkpoints").symlink_to(elsewhere, target_is_directory=True)
    done = cotan("train", "--data", corpus, *OPTIONS, *SHORT, "--out", out)
    assert done.returncode == 0, done.stderr
    names = {str(path) for path in contents(elsewhere)}
    saved = {f"step-{step}/{name}" for step in (4, 6) for name in ("config.json", *TENSORS)}
    assert names == saved | {"step-4/notes.txt"}
    same_end(out, whole)


def link(out, to):
    """best is a link to `to`, relative to the run, whatever it was."""
    if (out / "best").is_symlink():
        (out / "best").unlink()
    shutil.rmtree(out / "best", ignore_errors=True)
    (out / "best").symlink_to(to, target_is_directory=True)


def test_a_link_to_a_save_is_no_folder_of_best_weights(patient, whole, corpus, memory):
    def refused(out, to, *words):
        before = contents(out)
        done = cotan("train", *words)
        assert (done.returncode, done.stderr) == (
            1, f"cotan: {out}/best: the same folder as {out}{to}, where the run keeps other weights\n"
            "  hint: remove the link: a run has a folder of this name\n")
        assert contents(out) == before

    first, last = checkpoints(patient[0])
    out, other, elsewhere = memory / "run", memory / "other", memory / "elsewhere"
    copy_links(patient[0], out)
    for to in (f"checkpoints/step-{first}", f"checkpoints/step-{last}", f"{out}/checkpoints/step-{last}"):
        link(out, to)
        for words in ([], ["--resume-step", first], ["--patience", 0]):
            refused(out, "/checkpoints/" + to.split("/")[-1], "--resume", out, *words)
    link(out, ".")
    refused(out, "", "--resume", out)
    # A save that was moved, and is linked to as well; one that is not whole.
    shutil.move(out / f"checkpoints/step-{first}", elsewhere)
    (out / f"checkpoints/step-{first}").symlink_to(elsewhere, target_is_directory=True)
    link(out, elsewhere)
    refused(out, f"/checkpoints/step-{first}", "--resume", out)
    (out / "checkpoints/step-99.tmp").mkdir()
    link(out, "checkpoints/step-99.tmp")
    refused(out, "/checkpoints/step-99.tmp", "--resume", out)
    # Where it would be removed.
    for name in ("best.safetensors", "best.json"):
        (out / f"checkpoints/step-{last}" / name).unlink()
    link(out, f"checkpoints/step-{last}")
    refused(out, f"/checkpoints/step-{last}", "--resume", out, "--patience", 0)
    # A run that would take the place of another; one that goes on, and is to keep best weights from now on.
    shutil.copytree(whole, other)
    link(other, "checkpoints/step-6")
    refused(other, "/checkpoints/step-6", "--data", corpus, *OPTIONS, *KEEPS, "--overwrite", "--out", other)
    refused(other, "/checkpoints/step-6", "--resume", other, "--steps", 8, "--patience", 5)


def test_a_link_best_that_harms_nobody(patient, whole, memory):
    """To another place; to a save, in a run that keeps no best weights."""
    out, other, elsewhere = memory / "run", memory / "other", memory / "elsewhere"
    copy_links(patient[0], out)
    elsewhere.mkdir()
    link(out, elsewhere)
    done = cotan("train", "--resume", out, "--resume-step", checkpoints(out)[0])
    assert done.returncode == 0 and (out / "best").is_symlink(), done.stderr
    same_but_for_best(out, patient[0])
    same_best(out, patient[0])
    shutil.copytree(whole, other)
    link(other, "checkpoints/step-6")
    before = contents(other / "checkpoints/step-6")
    done = cotan("train", "--resume", other, "--steps", 8)
    assert done.returncode == 0 and os.readlink(other / "best") == "checkpoints/step-6", done.stderr
    assert contents(other / "checkpoints/step-6") == before and checkpoints(other) == [6, 8]
