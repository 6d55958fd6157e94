"""What is written ahead of time runs without the library, with the library's bits: a training step, a trained model."""
import ctypes
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.digits import written_by_hand

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build")).resolve()
SANITIZED = "COTAN_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
STEPS, BATCH = 30, 64
FLAGS = ["cc -O2", "clang -O3 -march=native"] + (["cc -O3 -march=native", "clang -O2"] if os.environ.get("COTAN_TEST_ALL") else [])


def compiled(folder, options, *words):
    return subprocess.run([*options.split(), "-Wall", "-Wextra", "-Werror", *map(str, words)], cwd=folder, check=True)


def digits(folder):
    """So many images and labels, as raw bytes; where there are no more, from the first again."""
    some = list(itertools.islice(itertools.cycle(written_by_hand()), STEPS * BATCH))
    (folder / "images").write_bytes(b"".join(image for image, _ in some))
    (folder / "labels").write_bytes(bytes(label for _, label in some))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The step as C, written where there is neither compiler nor cache, and what the library's training printed."""
    folder = tmp_path_factory.mktemp("compile")
    digits(folder)
    env = os.environ | {"COTAN_CC": "/no/such/compiler", "XDG_CACHE_HOME": str(folder / "no-cache")}
    done = subprocess.run([BUILD / "examples/08_compile", folder / "mnist_step"], env=env, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"") and not (folder / "no-cache").exists()
    sanitizers = ["-fsanitize=address,undefined"] if SANITIZED else []
    compiled(folder, "cc -O2 -std=gnu17", *sanitizers, f"-I{ROOT}/include", f"-I{BUILD}/derived", "-o", "library",
             ROOT / "tests/e2e/digits.c", BUILD / "libcotan.so", f"-Wl,-rpath,{BUILD}")
    done = subprocess.run([folder / "library"], cwd=folder, capture_output=True, text=True, check=True)
    losses = [float.fromhex(line.split()[0]) for line in done.stdout.splitlines()]
    assert len(losses) == STEPS and losses[0] > 2 and losses[-1] < losses[0] / 2
    return folder, done.stdout


@pytest.fixture(scope="module")
def step(trained):
    """The object of what was written, by the compiler's words; made once."""
    made = {}

    def of(options):
        if options not in made:
            made[options] = f"step{len(made)}.o"
            compiled(trained[0], options, "-c", "-o", made[options], "mnist_step.c")
        return made[options]
    return of


@pytest.mark.parametrize("options", [pytest.param(o, id=o.replace(" ", "")) for o in FLAGS])
def test_bits_of_the_library(trained, step, options):
    folder, said = trained
    compiled(folder, options, "-DWRITTEN", "-I.", "-o", "written", ROOT / "tests/e2e/digits.c", step(options), "-lm")
    done = subprocess.run([folder / "written"], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout == said
    assert (folder / "last-written").read_bytes() == (folder / "last").read_bytes()
    assert (folder / "last").read_bytes() != (folder / "first").read_bytes()


def test_needs_libm_alone(trained, step):
    folder, _ = trained
    symbols = subprocess.run(["nm", step("cc -O2")], cwd=folder, capture_output=True, text=True, check=True).stdout.split("\n")
    wanted = {line.split()[-1] for line in symbols if " U " in line}
    assert wanted <= {"fegetenv", "fesetenv", "fmaf", "sqrtf", "floorf", "rintf", "memcpy", "memmove", "memset",
                      "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}, wanted
    assert [line.split()[-1] for line in symbols if " T " in line] == ["mnist_step", "mnist_step_init"]
    libraries = subprocess.run(["ldd", "written"], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert "libm.so" in libraries and "cotan" not in libraries


def test_other_arithmetic_is_refused(trained):
    folder, _ = trained
    done = subprocess.run(["cc", "-Ofast", "-c", "-o", "fast.o", "mnist_step.c"], cwd=folder, capture_output=True, text=True)
    assert done.returncode and '#error "-ffast-math computes other numbers"' in done.stderr
    text = (folder / "mnist_step.h").read_text()
    other = folder / "other"
    other.mkdir()
    (other / "mnist_step.h").write_text(text.replace("_PLAN 0x", "_PLAN 0x1"))
    shutil.copy(folder / "mnist_step.c", other)
    done = subprocess.run(["cc", "-fsyntax-only", "mnist_step.c"], cwd=other, capture_output=True, text=True)
    assert done.returncode and '#error "mnist_step.h is of another plan"' in done.stderr


def test_example_says_what_is_wrong(tmp_path):
    done = subprocess.run([BUILD / "examples/08_compile", tmp_path / "none/step"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{tmp_path}/none/step.c: cannot create: No such file or directory\n"
    done = subprocess.run([BUILD / "examples/08_compile"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: ")


# ------------------------------------------------------------------------------------------------ cotan compile

TRAIN = ["--data", "README.md", "--layers", 2, "--heads", 2, "--width", 32, "--context", 16, "--batch", 3, "--steps", 12,
         "--eval-batches", 1, "--threads", 2]
SPEAK = """
#include "next_token.h"
#include <stdio.h>
static unsigned char arena[NEXT_TOKEN_ARENA_BYTES] __attribute__((aligned(64)));
static float logits[256], caches[MEMBERS][2 * 16 * 16];
int main(void) {
    struct next_token s;
    int32_t token = '\\n';
    next_token_init(&s);
    s.arena = arena, s.tokens = &token, s.logits = logits;
    FILL
    for (int i = 0; i < 15; i++) {
        s.position = i;
        if (next_token(&s)) return 1;
        token = 0;
        for (int k = 1; k < 256; k++) if (logits[k] > logits[token]) token = k;
        putchar(token);
    }
    return 0;
}
"""


def members(header):
    """Of the struct: [(name, kind, C type, shape, the variable's own name)]."""
    found, kind = [], None
    for line in header.split("struct ", 1)[1].splitlines():
        kind = line[7:] if re.fullmatch(r"    // \w+", line) else kind
        m = re.fullmatch(r"    (?:const )?(\w+) (\*?)(\w+); // (?:\(([\d, ]*)\))?.*?(?:: (\S+).*)?", line)
        if m and kind:
            shape = [int(n) for n in (m[4] or "").replace(",", " ").split()]
            found.append((m[3], kind, m[1], shape, m[5]))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    cotan("train", *TRAIN, "--out", folder / "run")
    return folder


def cotan(*words, **env):
    done = subprocess.run([str(BUILD / "cotan"), *map(str, words)], cwd=ROOT, capture_output=True, env=os.environ | env)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


class Written:
    """A function that cotan compile wrote, and NumPy arrays for its members."""

    def __init__(self, folder, name, *words):
        said = cotan("compile", folder / "run", "--out", folder / name, *words, COTAN_CC="/no/such/compiler")
        assert said.decode() == f"wrote {folder}/{name}.c and {folder}/{name}.h\n"
        compiled(folder, "cc -O1 -march=native -shared -fPIC", "-o", f"{name}.so", f"{name}.c", "-lm")
        header = (folder / f"{name}.h").read_text()
        types = {"float": ctypes.c_float, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64}
        self.members = members(header)
        fields = [("arena", ctypes.c_void_p)]
        fields += [(n, types[t] if kind == "scalars" else ctypes.c_void_p) for n, kind, t, _, _ in self.members]
        self.struct = type(name, (ctypes.Structure,), {"_fields_": fields})()
        self.function = getattr(ctypes.CDLL(folder / f"{name}.so"), name)
        getattr(ctypes.CDLL(folder / f"{name}.so"), name + "_init")(ctypes.byref(self.struct))
        size = int(re.search(r"_ARENA_BYTES (\d+)", header)[1])
        room = np.zeros(size + 64, np.uint8)
        self.arrays = {"arena": room[-room.ctypes.data % 64:]}
        for n, kind, t, shape, _ in self.members:
            if kind != "scalars":
                self.arrays[n] = np.zeros(shape, {"float": np.float32, "int64_t": np.int64}.get(t, np.int32))
        for n, a in self.arrays.items():
            setattr(self.struct, n, a.ctypes.data)

    def load(self, path):
        """Variables by their names in a safetensors file."""
        data = path.read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        index = json.loads(data[8:8 + n])
        for name, kind, _, _, own in self.members:
            if kind == "variables" and own in index:
                begin, end = index[own]["data_offsets"]
                self.arrays[name].reshape(-1)[...] = np.frombuffer(data[8 + n + begin:8 + n + end], self.arrays[name].dtype)

    def __call__(self, **given):
        for n, value in given.items():
            if n in self.arrays:
                self.arrays[n][...] = value
            else:
                setattr(self.struct, n, value)
        assert self.function(ctypes.byref(self.struct)) == 0
        return self.arrays


def test_token_and_window_have_the_same_bits(run):
    token, window = Written(run, "by_token", "--batch", 2), Written(run, "by_window", "--function", "window", "--batch", 2)
    text = np.random.default_rng(1).integers(0, 256, (2, 16))
    token.load(run / "run/model.safetensors")
    window.load(run / "run/model.safetensors")
    whole = window(tokens=text)["logits"]
    assert whole.shape == (2, 16, 256) and np.ptp(whole) > 0.1
    for i in range(16):
        one = token(tokens=text[:, i:i + 1], position=i)["logits"]
        assert one.tobytes() == whole[:, i].tobytes()


def test_token_draws_what_sample_draws(run):
    cotan("compile", run / "run", "--out", run / "next_token", "--embed-weights")
    header = (run / "next_token.h").read_text()
    caches = [n for n, kind, _, _, _ in members(header) if kind == "variables"]
    assert len(caches) == 4  # keys and values of two layers: no weights
    fill = " ".join(f"s.{n} = caches[{i}];" for i, n in enumerate(caches))
    (run / "speak.c").write_text(SPEAK.replace("FILL", fill).replace("MEMBERS", str(len(caches))))
    compiled(run, "cc -O2", "-o", "speak", "speak.c", "next_token.c", "-lm")
    said = subprocess.run([run / "speak"], capture_output=True, check=True).stdout
    sampled = cotan("sample", run / "run", "--temperature", 0, "--max-tokens", 15)
    assert len(said) == 15 and sampled == said.decode(errors="replace").encode() + b"\n"


def test_step_trains(run):
    step, window = Written(run, "train_step", "--function", "step"), Written(run, "score", "--function", "window", "--batch", 3)
    text = np.random.default_rng(2).integers(97, 123, (3, 17))
    for written in (step, window):
        written.load(run / "run/model.safetensors")
    step.load(run / "run/state.safetensors")
    assert step.arrays["step"] == 12
    logits = window(tokens=text[:, :-1])["logits"].astype(float)
    scores = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = -np.take_along_axis(scores, text[:, 1:, None], -1).mean()
    losses = [float(step(tokens=text[:, :-1], targets=text[:, 1:], learning_rate=1e-2)["loss"]) for _ in range(40)]
    assert abs(losses[0] - loss) < 1e-5 and losses[-1] < 0.7 * losses[0] and step.arrays["step"] == 52
