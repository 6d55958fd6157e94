"""Every example runs, on data that lies here or is made here, and does what it says."""
import os
import re
import subprocess
from pathlib import Path

import pytest
from support.digits import write_idx, written_by_hand

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "examples"


def run(name, *words):
    return subprocess.run([EXAMPLES / name, *map(str, words)], capture_output=True, timeout=500)


def output(name, *words):
    done = run(name, *words)
    assert done.returncode == 0 and not done.stderr, done.stderr.decode()
    return done.stdout.decode(errors="replace")


def test_each_example_is_tested():
    tests = "".join(p.read_text() for p in (ROOT / "tests").rglob("test_*.py"))
    assert [p.stem for p in (ROOT / "examples").glob("*.c") if p.stem not in tests] == []


def test_hello():
    assert output("01_hello").splitlines()[1] == "x = 0.5  f' = 2.4731  f'' = 4.1218"


def test_linear():
    assert output("02_linear").splitlines() == [
        "loss         2.0156",
        "descended    weight = 3.450 * (height - 65.0) + 136.733",
        "closed form  weight = 3.450 * (height - 65.0) + 136.733"]


def test_attention():
    assert output("07_attention").splitlines() == [
        "the gradients of q, k, v and fade agree with differences, to the second order"]


def test_transforms():
    lines = output("09_transforms").splitlines()
    assert lines[0] == "step 0  loss 0.69315" and lines[7].startswith("step 7  loss 0.3")
    assert lines[-1].startswith("5.0 h, passed: pulls by +0.0") and len(lines) == 18


def accuracies(text):
    return [float(x) for x in re.findall(r"accuracy (\S+) %", text)]


def test_digits_written_by_hand(tmp_path):
    """1,500 to learn from and the others to tell."""
    digits = written_by_hand()
    write_idx(tmp_path / "train", digits[:1500])
    write_idx(tmp_path / "test", digits[1500:])
    shown = accuracies(output("03_mnist", tmp_path / "train", tmp_path / "test", 15))
    assert len(shown) == 15 and shown[-1] > 93, shown
    shown = accuracies(output("10_convnet", tmp_path / "train", tmp_path / "test", 5))
    assert len(shown) == 5 and shown[-1] > 90, shown


def test_names(tmp_path):
    words = re.findall(r"\b[a-z]{3,9}\b", "".join(p.read_text() for p in sorted((ROOT / "docs/design").glob("*.md"))))
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    lines = output("04_names", tmp_path / "words.txt", 400).splitlines()
    losses = [float(line.split()[3]) for line in lines[:5]]
    assert losses[-1] < 2.9 and len(lines) == 15  # ln 27 is 3.3
    assert all(re.fullmatch("[a-z]*", line) for line in lines[5:]) and any(lines[5:])


def test_gpt():
    out = output("05_gpt", ROOT / "README.md", 30)
    losses = [float(x) for x in re.findall(r"^step .* loss (\S+)$", out, re.M)]
    assert len(losses) == 10 and losses[0] > 5 > 4.5 > losses[-1]  # ln 256 is 5.5
    assert len(out.split(f"loss {losses[-1]:.3f}\n")[1]) > 100


@pytest.mark.parametrize("name, words, said", [
    ("03_mnist", ["none/train", "none/test"], "03_mnist.c:{}: load_idx: none/train-images-idx3-ubyte: cannot open: "),
    ("10_convnet", ["none/train", "none/test"], "10_convnet.c:{}: load_idx: none/train-images-idx3-ubyte: cannot open: "),
    ("04_names", ["none"], "04_names.c:{}: load_bytes: none: cannot open: "),
    ("05_gpt", ["none"], "05_gpt.c:{}: load_bytes: none: cannot open: ")])
def test_what_cannot_be_read_is_said(name, words, said):
    lines = (ROOT / f"examples/{name}.c").read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "ct_load_" in text)
    done = run(name, *words)
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.decode() == f"examples/{said.format(line)}No such file or directory\n"
    done = run(name)
    assert done.returncode == 2 and done.stderr.decode().startswith("usage: ")


@pytest.mark.parametrize("name, words, said", [
    ("03_mnist", ["none/train", "none/test", "x"], "usage: {program} TRAIN TEST [EPOCHS]\n"),
    ("04_names", ["README.md", "x"], "STEPS is no number above 0: x\n"),
    ("05_gpt", ["README.md", "-3"], "STEPS is no number above 0: -3\n"),
    ("06_daemon", [], "usage: {program} SOCKET\nmakes it, and answers lines: train N, status, stop, quit (nc -U SOCKET)\n")])
def test_words_that_mean_nothing_are_refused(name, words, said):
    done = run(name, *words)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.decode() == said.format(program=EXAMPLES / name)


def test_other_letters_are_refused(tmp_path):
    """They would be letters beyond the last one, whose loss is NaN."""
    path = tmp_path / "names.txt"
    for other in "Anna", "an na", "anna\r", "\N{LATIN SMALL LETTER A WITH DIAERESIS}nna":
        path.write_bytes(("anna\n" * 30 + other + "\n").encode())
        done = run("04_names", path, 5)
        assert done.returncode == 1 and not done.stdout
        assert done.stderr.decode() == f"{path}:31: only letters a to z are known\n"


def test_what_is_said_of_their_length_is_true():
    assert len((ROOT / "examples/03_mnist.c").read_text().splitlines()) == 79
    for page in ("README.md", "docs/getting-started.md"):
        assert "in 79 lines" in (ROOT / page).read_text()
