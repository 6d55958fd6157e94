"""A device from outside: examples/plugin/own_device.c, which no other file of the project knows, has the bits of device cpu on ops of every kind
and in a text run; what is wrong with such a library is said in a sentence."""
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import op_samples
import pytest
from op_cases import Case, Failure, read_table, run
from test_opencl import SOME

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")).resolve() / "cotan"
EXAMPLE = ROOT / "examples/plugin/own_device.c"


def compiled(folder, text, name="own.so"):
    source = folder / "own.c"
    source.write_text(text)
    out = folder / name
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", f"-I{ROOT}/include", f"-I{os.environ.get('COTAN_BUILD', ROOT / 'build')}/derived",
                    str(source), "-o", str(out)], check=True)
    return out


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("device"), EXAMPLE.read_text())


def cotan(*words, **env):
    return subprocess.run([str(COTAN), *map(str, words)], capture_output=True, text=True, timeout=300, env=os.environ | env)


def test_fifty_ops_have_the_bits_of_cpu(library):
    """Of every kind, and the elementwise ones as far as the fifty go; `make test-all` runs every op's tables."""
    table, rng = read_table(), np.random.default_rng(op_samples.RNG_SEED)
    known = {case.op.name for case in SOME} | set(op_samples.ELEMENTWISE_ATTRS)
    names = [name for name in sorted(op_samples.ELEMENTWISE) if name not in known and "f32" in table[name].accepts]
    cases = SOME + [Case(table[name], next(iter(op_samples.elementwise(rng, table[name], "f32")))) for name in names[:40]]
    assert len({case.op.name for case in cases}) >= 50
    wants = run(cases, "cpu", compiled=False)
    for case, want, got in zip(cases, wants, run(cases, "own", COTAN_DEVICE_LIBRARY=str(library), COTAN_CHECK="bounds")):
        assert not isinstance(want, Failure) and not isinstance(got, Failure), (case, want, got)
        assert all(w.dtype == g.dtype and w.shape == g.shape and w.tobytes() == g.tobytes() for w, g in zip(want, got)), case


@pytest.mark.skipif(os.environ.get("COTAN_TEST_ALL") != "1", reason="a compiler at a time takes half a minute")
def test_it_trains_with_the_bits_of_cpu(library, tmp_path):
    words = ["train", "--data", ROOT / "README.md", "--layers", 1, "--heads", 2, "--width", 32, "--context", 32, "--batch", 4, "--steps", 3]
    for name in ("own", "cpu"):
        done = cotan(*words, "--device", name, "--out", tmp_path / name, COTAN_DEVICE_LIBRARY=str(library))
        assert done.returncode == 0, done.stderr
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("own", "cpu")]
    assert weights[0] == weights[1] and " --device own\n" not in done.stderr


def test_it_is_listed(library):
    """Behind another library, which cannot be loaded."""
    done = cotan("devices", "--list", COTAN_DEVICE_LIBRARY=f"/none.so:{library}")
    line = done.stdout.splitlines()[-1]
    assert line.startswith("own ") and line.endswith("  an example: one thread, and memory out of the host's sight")


NAME = '.name = "own",'
BREAKS = [  # what is changed in the example, and what is said of it
    (NAME, '.name = "cpu",', "device_define: there is a device cpu already"),
    (NAME, '.name = "My device",', 'device_define: the name "My device" is not made of 1 to 20 lower-case letters and digits'),
    (".struct_size = sizeof spec,", ".struct_size = 8,", "device_define: the device was compiled with the headers of another version of Cotan"),
    (".wait = own_wait", ".wait = NULL", "device_define: device own lacks a function"),
    ('if (!d) return "out of memory";', 'return free(d), "it is busy";', "own: it cannot be opened: it is busy"),
    ('"cc",', '"false",', "kernel k_[0-9a-f]{32} cannot be compiled: cc gave no library"),
    ("    own_device *d = state;\n    void *buffers", '    return "it is on fire";\n    own_device *d = state;\n    void *buffers',
     "own: k_[0-9a-f]{32}: it is on fire"),
    ("const ct_device_spec *cotan_device(void) {", "const ct_device_spec *cotan_devise(void);\nconst ct_device_spec *cotan_devise(void) {",
     "device_load: .*/own.so has no function cotan_device, which returns its device"),
    ("    return &spec;", "    return NULL;", "device_load: cotan_device of .*/own.so returned NULL"),
]


@pytest.mark.parametrize("old, new, message", BREAKS, ids=[b[2][:30] for b in BREAKS])
def test_what_is_wrong_is_said(old, new, message, tmp_path):
    text = EXAMPLE.read_text()
    assert old in text
    out = compiled(tmp_path, text.replace(old, new))
    done = cotan("train", "--data", ROOT / "README.md", "--layers", 1, "--heads", 1, "--width", 8, "--context", 8, "--batch", 1, "--steps", 1,
                 "--device", "own", "--out", tmp_path / "run", COTAN_DEVICE_LIBRARY=str(out))
    assert done.returncode == 1 and re.search(message + r"\n", done.stderr), done.stderr


def test_a_library_that_is_not_there():
    done = cotan("sample", "none", "--device", "own", COTAN_DEVICE_LIBRARY="/none.so")
    assert (done.returncode, done.stderr) == (1, "cotan: device_load: /none.so: cannot open shared object file: No such file or directory\n")


def test_a_device_that_is_lost_in_a_run(tmp_path):
    """The last checkpoint is named, and the run goes on from there, on another device, to the same weights."""
    text = EXAMPLE.read_text()
    begin = text.index("    own_device *d = state;", text.index("own_launch(void *state"))
    out = compiled(tmp_path, text[:begin] + "    static int launches;\n    if (++launches > 4000) return \"it fell off the bus\";\n" + text[begin:])
    words = ["train", "--data", ROOT / "README.md", "--layers", 1, "--heads", 1, "--width", 8, "--context", 8, "--batch", 1, "--steps", 60,
             "--eval-batches", 1, "--eval-every", 60, "--save-every", 2]
    done = cotan(*words, "--device", "own", "--out", tmp_path / "lost", COTAN_DEVICE_LIBRARY=str(out))
    said = re.search(r"cotan: own: k_[0-9a-f]{32}: it fell off the bus\n"
                     r"  hint: the checkpoint of step (\d+) is complete: --resume continues from it after this is fixed\n", done.stderr)
    assert done.returncode == 1 and said and 2 <= int(said[1]) < 60, done.stderr
    assert cotan("train", "--resume", tmp_path / "lost").returncode == 0
    assert cotan(*words, "--out", tmp_path / "whole").returncode == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("lost", "whole")]
    assert weights[0] == weights[1]
