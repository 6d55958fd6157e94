"""What the program says to what it cannot do: whole messages and exit statuses."""
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "cotan"


def cotan(*words, env=None):
    return subprocess.run([str(COTAN), *map(str, words)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env=os.environ | (env or {}), timeout=120)


def refused(status, message, *words, env=None):
    done = cotan(*words, env=env)
    assert (done.returncode, done.stderr, done.stdout) == (status, f"cotan: {message}\n", "")


@pytest.mark.parametrize("words, message", [
    (["inof"], 'there is no command "inof"; is info meant?'),
    (["reconstruct"], 'there is no command "reconstruct"; cotan help lists them'),
    (["x\x1b[2J"], 'there is no command "x?[2J"; cotan help lists them'),
    (["help", "inof"], 'there is no command "inof"; is info meant?'),
    (["help", "info", "info"], "help: one command is wanted: cotan help info"),
    (["version", "x"], "version: it takes no options"),
    (["info"], "info: it needs a FILE: cotan info FILE"),
    (["info", "a", "b"], 'info: one FILE is wanted, not both "a" and "b"'),
    (["info", "--hlp"], "info: there is no option --hlp; is --help meant?"),
    (["info", "--completely-else"],
     "info: there is no option --completely-else; cotan info --help lists them"),
])
def test_words(words, message):
    refused(2, message, *words)


def test_no_words():
    done = cotan()
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("Cotan: deep learning in C.\n")


def test_info_of_what_is_not_there(tmp_path):
    path = tmp_path / "none.txt"
    refused(1, f"{path}: cannot open: No such file or directory", "info", path)


def test_info_of_an_empty_file(tmp_path):
    path = tmp_path / "empty.txt"
    path.write_bytes(b"")
    refused(1, f"{path}: the file is empty", "info", path)


def test_info_of_a_truncated_checkpoint(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    refused(1, f"{path}: safetensors: the header takes 16 bytes by its length, but only 2 follow: the "
            "file is cut short",
            "info", path)
