"""Where the text of a run lies: around the run's own folder, or in a folder whose name looks like a pattern."""
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")).resolve() / "cotan"
TINY = ["--layers", 1, "--heads", 2, "--width", 8, "--context", 8, "--batch", 2, "--eval-batches", 1, "--device", "ref",
        "--patience", 9]


def cotan(folder, *words):
    done = subprocess.run([str(COTAN), *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


def steps(run):
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("out", [".", "run", "saves/run"])
def test_the_text_is_all_around(tmp_path, out):
    (tmp_path / "book.txt").write_text((ROOT / "README.md").read_text()[:3000])
    words = ["train", "--data", ".", *TINY, "--steps", 2, "--out"]
    cotan(tmp_path, *words, out)
    assert (tmp_path / out / "best/config.json").exists()
    said = cotan(tmp_path, *words, "another")  # what the first one wrote is no text of the second
    assert said.startswith("3000 bytes of text, ")
    for run in (out, "another"):
        said = cotan("/", "train", "--resume", tmp_path / run, "--steps", 4, "--device", "ref")
        assert "\nresuming at step 2, for 4 steps instead of 2\n" in said
        assert steps(tmp_path / run) == [0, 1, 2, 3]


def test_texts_in_folders_that_are_called_like_a_runs(tmp_path):
    """They are read alike when the run begins, and when it goes on."""
    (tmp_path / "book.txt").write_text((ROOT / "README.md").read_text()[:3000])
    for name in ("best/poem.txt", "checkpoints/story.txt", "checkpoints/step-by-step/more.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a" * 100)
    said = cotan(tmp_path, "train", "--data", ".", *TINY, "--steps", 2, "--out", ".")
    assert said.startswith("3300 bytes of text, ")
    said = cotan("/", "train", "--resume", tmp_path, "--steps", 4, "--device", "ref")
    assert said.startswith("3300 bytes of text, ") and steps(tmp_path) == [0, 1, 2, 3]


def test_a_folder_whose_name_looks_like_a_pattern(tmp_path):
    for name in ("a[b]", "ab", "c\\*?[x"):
        folder = tmp_path / name
        folder.mkdir()
        for i in range(2):
            (folder / f"n{i}.txt").write_text(name + (ROOT / "README.md").read_text()[:1000 + i])
        for words in (["n*.txt"], ["n0.txt", "n[1].txt"]):
            run = folder / f"run{len(words)}"
            cotan(folder, "train", "--data", *words, *TINY, "--steps", 2, "--out", run)
            cotan("/", "train", "--resume", run, "--steps", 3, "--device", "ref")
            assert steps(run) == [0, 1, 2]
            cotan("/", "train", "--resume", run, "--steps", 4, "--device", "ref")  # as the resumed run has it
