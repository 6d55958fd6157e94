"""A linear model trained from other languages, all through the shared library: the same line as from C."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build"))
SOURCES = ROOT / "examples/bindings"
SANITIZED = "COTAN_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
INCLUDES = [f"-I{ROOT / 'include'}", f"-I{BUILD / 'derived'}"]
LINK = [f"-L{BUILD}", "-lcotan", f"-Wl,-rpath,{BUILD}"]


def run(command, **env):
    if SANITIZED:  # its runtime must be there before the library
        runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], text=True, check=True,
                                 capture_output=True).stdout.strip()
        env |= {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([str(c) for c in command], text=True, capture_output=True,
                          env=os.environ | env)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def compile_(command, **env):
    done = subprocess.run([str(c) for c in command], text=True, capture_output=True,
                          env=os.environ | env)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def tool(*names):
    """Skips where a language is not installed; `make test-all` installs it and allows no skip."""
    for name in names:
        # rustup puts a shim on PATH before there is a toolchain behind it
        version = "version" if name == "go" else "--version"
        if not shutil.which(name) or subprocess.run([name, version], capture_output=True).returncode:
            assert not os.environ.get("COTAN_TEST_ALL"), f"{name} is not installed"
            pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="module")
def from_c(tmp_path_factory):
    program = tmp_path_factory.mktemp("c") / "linear"
    compile_(["cc", *INCLUDES, SOURCES / "linear.c", "-o", program, *LINK])
    text = run([program])
    assert text.startswith("y = 2.00000 a + -3.00000 b + 1.00000, loss "), text
    return text


def test_python(from_c):
    assert run([sys.executable, SOURCES / "linear.py", BUILD / "libcotan.so"]) == from_c


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_cpp(from_c, compiler, tmp_path):
    compile_([compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion",
              "-Werror", *INCLUDES, SOURCES / "linear.cpp", "-o", tmp_path / "linear", *LINK])
    assert run([tmp_path / "linear"]) == from_c


def test_go(from_c, tmp_path):
    tool("go")
    (tmp_path / "cotan.pc").write_text(f"Name: cotan\nDescription: .\nVersion: 0\nCflags: {' '.join(INCLUDES)}\n"
                                       f"Libs: -L{BUILD} -lcotan\n")
    compile_(["go", "build", "-o", tmp_path / "linear", SOURCES / "linear.go"],
             GOCACHE=str(tmp_path / "cache"), GOPATH=str(tmp_path / "path"), GOFLAGS="-mod=mod",
             PKG_CONFIG_PATH=str(tmp_path))
    assert run([tmp_path / "linear"], LD_LIBRARY_PATH=str(BUILD)) == from_c


def test_rust(from_c, tmp_path):
    tool("rustc", "bindgen")
    (tmp_path / "linear.h").write_text("#include <cotan/optim.h>\n")
    compile_(["bindgen", tmp_path / "linear.h", "--allowlist-function", "ct_.*", "--allowlist-type", "ct_.*",
              "--default-enum-style", "consts", "--no-prepend-enum-name", "-o", tmp_path / "cotan.rs",
              "--", *INCLUDES])
    compile_(["rustc", SOURCES / "linear.rs", "-L", BUILD, "-l", "cotan", "-o", tmp_path / "linear"],
             COTAN_RS=str(tmp_path / "cotan.rs"))
    assert run([tmp_path / "linear"], LD_LIBRARY_PATH=str(BUILD)) == from_c
