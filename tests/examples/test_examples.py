"""Every example runs, on data that is here or made here, and does what it says."""
import os
import random
import re
import struct
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "examples"
DATA = Path(os.environ.get("COTAN_DATA", ROOT / "../shared/data"))


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


def write_idx(path, values, *sizes):
    path.write_bytes(bytes([0, 0, 8, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes) + bytes(values))


def draw_digits(prefix, n, seed):
    """Digits as on a pocket calculator, in images of 28 x 28, moved and soiled."""
    dice, segments = random.Random(seed), "abcefg bcf acdeg acdfg bcdf abdfg abdefg acf abcdefg abcdfg".split()
    bars = {"a": (0, 0, 1, 8), "b": (0, 0, 8, 1), "c": (0, 7, 8, 1), "d": (7, 0, 1, 8),
            "e": (7, 0, 8, 1), "f": (7, 7, 8, 1), "g": (14, 0, 1, 8)}
    images, labels = bytearray(), bytearray()
    for _ in range(n):
        digit, image = dice.randrange(10), bytearray(dice.randrange(60) for _ in range(28 * 28))
        top, left = dice.randrange(5, 8), dice.randrange(8, 11)
        for row, column, height, width in (bars[s] for s in segments[digit]):
            for y in range(height + 1):
                for x in range(width + 1):
                    image[(top + row + y) * 28 + left + column + x] = dice.randrange(180, 256)
        images += image
        labels.append(digit)
    write_idx(Path(f"{prefix}-images-idx3-ubyte"), images, n, 28, 28)
    write_idx(Path(f"{prefix}-labels-idx1-ubyte"), labels, n)


def accuracies(text):
    return [float(x) for x in re.findall(r"accuracy (\S+) %", text)]


def test_digits_drawn_here(tmp_path):
    draw_digits(tmp_path / "train", 2000, 1)
    draw_digits(tmp_path / "test", 500, 2)
    shown = accuracies(output("03_mnist", tmp_path / "train", tmp_path / "test", 8))
    assert len(shown) == 8 and shown[-1] > 90, shown


def test_digits_of_mnist(tmp_path):
    """8,000 handwritten digits to learn from, 2,000 to tell: what the example promises."""
    packed = sorted(DATA.glob("mnist10k-*-ubyte.gz"))
    if len(packed) != 4:
        pytest.skip("there are no MNIST digits here: put them in ../shared/data or $COTAN_DATA")
    for path in packed:
        with open(tmp_path / path.stem, "wb") as out:
            subprocess.run(["gunzip", "-c", path], check=True, stdout=out)
    begin = time.monotonic()
    shown = accuracies(output("03_mnist", tmp_path / "mnist10k-train", tmp_path / "mnist10k-test"))
    assert shown[-1] >= 95.5, shown
    assert time.monotonic() - begin < 60


def text_file(name, other):
    """A file of the data where it lies, else one made of the project's own words."""
    return DATA / name if (DATA / name).is_file() else other


def test_names(tmp_path):
    words = re.findall(r"\b[a-z]{3,9}\b", "".join(p.read_text() for p in sorted((ROOT / "docs/design").glob("*.md"))))
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    lines = output("04_names", text_file("names.txt", tmp_path / "words.txt"), 400).splitlines()
    losses = [float(line.split()[3]) for line in lines[:5]]
    assert losses[-1] < 2.9 and len(lines) == 15  # ln 27 is 3.3
    assert all(re.fullmatch("[a-z]*", line) for line in lines[5:]) and any(lines[5:])


def test_gpt():
    text = text_file("tinyshakespeare.txt", ROOT / "README.md")
    out = output("05_gpt", text, 30)
    losses = [float(x) for x in re.findall(r"^step .* loss (\S+)$", out, re.M)]
    assert len(losses) == 10 and losses[0] > 5 > 4.5 > losses[-1]  # ln 256 is 5.5
    assert len(out.split(f"loss {losses[-1]:.3f}\n")[1]) > 100


@pytest.mark.parametrize("name, words, said", [
    ("03_mnist", ["none/train", "none/test"], "03_mnist.c:{}: load_idx: none/train-images-idx3-ubyte: cannot open: "),
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
