"""Best weights that a save of a run has no more, when it is resumed."""
import os

import pytest

from test_resume import (WITHOUT, checkpoints, copy_links, corpus, cotan, damage_best, memory, on_ref,  # noqa: F401
                         patient, same_best, same_but_for_best, training)


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
