"""Whose warnings are errors: the tests' always; elsewhere those of compilers that are known to have none to tell."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*words, **env):
    plain = {k: v for k, v in os.environ.items() if k not in ("CFLAGS", "MAKEFLAGS", "MAKELEVEL", "CMAKE_C_COMPILER_LAUNCHER")}
    done = subprocess.run([*map(str, words)], cwd=ROOT, env=plain | env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compiler(folder, version):
    """gcc, as another one of its versions says of itself what it is."""
    path = folder / "cc"
    path.write_text(f'#!/bin/sh\nexec {shutil.which("gcc")} -U__GNUC__ -D__GNUC__={version} "$@"\n')
    path.chmod(0o755)
    return path


def commands(build, *words, **env):
    run("cmake", "-S", ".", "-B", build, "-G", "Ninja", *words, **env)
    return {c["file"]: c["command"] for c in json.loads((build / "compile_commands.json").read_text())}


def strict(compiled):
    found = {" -Werror" in command for command in compiled.values()}
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize("version, known", [(12, True), (13, False), (11, False)])
def test_whose_warnings_are_errors(tmp_path, version, known):
    """A test build behind a known compiler's first one compiles nothing anew."""
    build, cc = tmp_path / "build", compiler(tmp_path, version)
    first = commands(build, f"-DCMAKE_C_COMPILER={cc}", "-DCOTAN_WERROR=KNOWN")
    tested = commands(build, "-DCOTAN_WERROR=ON")
    assert strict(first) == known and strict(tested)
    assert (first == tested) == known
    assert commands(build) == tested  # which stays
    assert not strict(commands(build, "-DCOTAN_WERROR=OFF"))


def test_nobodys_without_being_asked(tmp_path):
    assert not strict(commands(tmp_path / "build", f"-DCMAKE_C_COMPILER={compiler(tmp_path, 12)}"))


def test_flags_of_the_user_may_warn_of_more(tmp_path):
    words = [f"-DCMAKE_C_COMPILER={compiler(tmp_path, 12)}", "-DCOTAN_WERROR=KNOWN"]
    assert not strict(commands(tmp_path / "build", *words, CFLAGS="-Wcast-align"))


@pytest.mark.parametrize("there", [True, False])
def test_tests_that_are_not_built_are_told(tmp_path, there):
    """Without cmocka: in one line on the terminal, behind what the compiler says."""
    programs = {"cmake": f'case $* in *--build*) echo built;; *) exec {shutil.which("cmake")} "$@";; esac',
                "pkg-config": f'case "$*" in *cmocka*) exit 1;; esac\nexec {shutil.which("pkg-config")} "$@"'}
    if there:
        del programs["pkg-config"]
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    said = run("make", "--no-print-directory", "build", f"BUILD={tmp_path / 'build'}", PATH=f"{tmp_path}:{os.environ['PATH']}")
    missing = ("The tests are not built: cmocka is not installed (Debian: libcmocka-dev, Fedora: libcmocka-devel, Arch: cmocka; "
               "make test installs it)\n")
    assert said == "built\n" + (missing if not there else "")


def test_what_make_asks_for(tmp_path):
    """Of a new folder, and of one that says already what it wants."""
    for target in ("run", "build", "fuzz", "test"):
        asked = "ON" if target == "test" else "KNOWN"
        for there in (False, True):
            build = tmp_path / f"{target}-{there}"
            build.mkdir()
            if there:
                (build / "CMakeCache.txt").touch()
            said = run("make", "-n", target, f"BUILD={build}")
            words = f"-G Ninja -DCOTAN_WERROR={asked} >" if target == "test" or not there else "-G Ninja  >"
            assert words in said, said
