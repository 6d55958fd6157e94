"""Kernels that tests make, rendered as CUDA, through NVIDIA's compiler for three generations of GPUs. It needs no GPU.

Tests run with their kernels interpreted and written into a folder (COTAN_DUMP=cuda); each distinct kernel is then compiled to machine
code. A sample of the tests, 100 s of processor time, is a part of CI of its own (COTAN_TEST_NVRTC=1); with COTAN_TEST_ALL=1 whole files of
tests/ops, and more random graphs.
"""
import ctypes
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from support.program import BUILD

ROOT = Path(__file__).resolve().parents[2]
ALL = os.environ.get("COTAN_TEST_ALL") == "1"
pytestmark = pytest.mark.skipif(not ALL and os.environ.get("COTAN_TEST_NVRTC") != "1", reason="minutes of NVIDIA's compiler")
ARCHITECTURES = ["sm_80", "sm_90a", "sm_120"]
# As kernels are to be compiled (src/compile/render/render_gpu.h). -w: the prelude has more than a kernel needs.
# Most optimisations are left out, for half the time: they decide nothing of what is legal.
OPTIONS = ["--fmad=false", "-w", "--Ofast-compile=max"]
TOGETHER = 64  # kernels in a call, for which the prelude is read once
MOST = None if ALL else 800  # kernels: those whose names, which are hashes, are spread evenly
INCLUDE = '#include "prelude.cuh"\n'
# Cases of tests/ops that are enough on every change.
SOME = ["softmax-cpu", "sum-cpu", "argmax-cpu", "test_cast", "matmul-cpu", "conv-cpu", "attention-cpu", "attention_backward-cpu",
        "gather-cpu", "scatter_add-cpu", "sort-cpu", "rms_norm-cpu", "linear_cross_entropy-cpu", "few_rows", "quantised_activations",
        "test_bits"]


def makers():
    """What makes kernels: a name, a command, more environment."""
    files = ["op_values", "quantise", "op_random"]
    if ALL:
        files += ["op_graphs", "op_gradients", "products", "compositions", "complex", "dtypes", "einsum", "linearize",
                  "loop_transforms", "remat"]
    for file in files:
        yield file, [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/ops/test_{file}.py",
                     *([] if ALL else ["-k", " or ".join(SOME)])], {}
    yield "random graphs", ["tests/fuzz/test_random_graphs_slow"], {"COTAN_FUZZ_COUNT": "100" if ALL else "40"}
    for name in ("template_nodes", "attention", "gpt2"):
        yield name, [f"tests/unit/test_{name}"], {}


def make(folder, name, command, more):
    """The kernels of a program: name to path."""
    folder = folder / name
    folder.mkdir()
    env = os.environ | {"COTAN_TEST_ALL": "0", "COTAN_DUMP": "cuda", "COTAN_DUMP_DIR": str(folder), "COTAN_CC": "none",
                        "COTAN_TEST_DEVICES": "cpu", "COTAN_FUZZ_COMPILED": "0", "COTAN_BUILD": str(BUILD.resolve())}
    begin = time.monotonic()
    if command[0] != sys.executable:
        command = [str(BUILD.resolve() / command[0])]
    done = subprocess.run(command, cwd=ROOT, env=env | more, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, f"{name}\n{(done.stdout + done.stderr)[-3000:]}"
    made = {path.name: path for path in folder.glob("*.cu")}
    assert made, name
    print(f"{name}: {len(made)} kernels, {time.monotonic() - begin:.0f} s")
    return made


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The distinct kernels of all makers: name to path."""
    folder, every = tmp_path_factory.mktemp("kernels"), {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for made in pool.map(lambda maker: make(folder, *maker), makers()):
            every |= made
    return every


class Nvrtc:
    def __init__(self):
        found = [p for folder in sys.path for p in Path(folder).glob("nvidia/*/lib/libnvrtc.so.*")]
        assert found, "libnvrtc.so is not in the packages of tests/requirements.txt"
        self.lib = ctypes.CDLL(str(found[0]))

    def check(self, code):
        self.lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        assert code == 0, self.lib.nvrtcGetErrorString(code)

    def text(self, program, size, get):
        n = ctypes.c_size_t()
        self.check(getattr(self.lib, size)(program, ctypes.byref(n)))
        text = ctypes.create_string_buffer(n.value + 1)
        self.check(getattr(self.lib, get)(program, text))
        return text.raw[:n.value]

    def compile(self, source, architecture):
        """Bytes of machine code, and what the compiler says, if that is no code."""
        program = ctypes.c_void_p()
        self.check(self.lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
        options = [f"--gpu-architecture={architecture}", *OPTIONS]
        words = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        code = self.lib.nvrtcCompileProgram(program, len(options), words)
        log = self.text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").decode(errors="replace").strip("\0")
        size = len(self.text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")) if code == 0 else 0
        self.check(self.lib.nvrtcDestroyProgram(ctypes.byref(program)))
        return size, log or f"error {code}"


def compile_each(paths, architecture):
    """What fails of these kernels: name, first line of it, first error."""
    nvrtc, prelude = Nvrtc(), (paths[0].parent / "prelude.cuh").read_text()

    def failure(these):
        texts = [path.read_text() for path in these]
        assert all(text.startswith(INCLUDE) for text in texts)
        source = prelude + "".join(f'#line 2 "{path.name}"\n{text[len(INCLUDE):]}' for path, text in zip(these, texts))
        size, log = nvrtc.compile(source, architecture)
        errors = [line for line in log.splitlines() if re.search(r"\berror\b", line)]
        return None if size else f"{these[0].name}, {texts[0].splitlines()[1]}\n    {errors[0] if errors else log[:300]}"

    if not failure(paths):
        return []
    return [wrong for path in paths if (wrong := failure([path]))]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_compiles(kernels, architecture):
    paths = [kernels[name] for name in sorted(kernels)]
    paths = paths[::-(-len(paths) // MOST) if MOST else 1]
    parts = [paths[i:i + TOGETHER] for i in range(0, len(paths), TOGETHER)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        failures = [wrong for part in pool.map(compile_each, parts, [architecture] * len(parts)) for wrong in part]
    assert not failures, (f"{architecture}: {len(failures)} of {len(paths)} kernels do not compile\n" + "\n".join(failures[:10]))
    print(f"{architecture}: {len(paths)} kernels")
