"""What `cmake --install` gives: libraries with public names alone, and programs that build with it."""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build"))
SOURCES = ROOT / "examples/bindings"
ANSWER = "y = 2.00000 a + -3.00000 b + 1.00000, loss "
SANITIZED = "COTAN_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
SANITIZE = ["-fsanitize=address,undefined"] if SANITIZED else []


def run(command, **options):
    done = subprocess.run([str(c) for c in command], text=True, capture_output=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A prefix that was moved after the installation."""
    at = tmp_path_factory.mktemp("install")
    run(["cmake", "--install", BUILD, "--prefix", at / "first"])
    (at / "first").rename(at / "second")
    return at / "second"


@pytest.fixture(scope="module")
def libdir(installed):
    return next(installed.rglob("libcotan.a")).parent


@pytest.fixture(scope="module")
def flags(libdir):
    env = os.environ | {"PKG_CONFIG_PATH": str(libdir / "pkgconfig")}

    def ask(*what):
        return run(["pkg-config", *what, "cotan"], env=env).split()
    return ask


def check(program, libdir=None):
    env = os.environ | ({"LD_LIBRARY_PATH": str(libdir)} if libdir else {})
    text = run([program], env=env)
    assert text.startswith(ANSWER), text
    return text


def test_all_headers_are_installed(installed):
    names = {p.name for p in (installed / "include/cotan").iterdir()}
    written = {p.name for p in (ROOT / "include/cotan").iterdir()}
    assert names == written | {"ops.h", "functions.hpp"}


def test_the_shared_library_shows_public_names_alone(libdir):
    library = libdir / "libcotan.so"
    names = [line.split()[-1] for line in run(["nm", "-D", "--defined-only", library]).splitlines()]
    assert len(names) > 250 and [n for n in names if not n.startswith("ct_")] == []
    assert [n for n in names if n.startswith("ct__")] == ["ct__autocast_cleanup", "ct__scope_cleanup"]  # of CT_AUTOCAST, CT_SCOPE
    dynamic = run(["readelf", "-d", library])
    assert "soname: [libcotan.so.0.1]" in dynamic  # until 1.0 a program loads no other minor version
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    if not SANITIZED:
        assert set(needed) <= {"libc.so.6", "libm.so.6", "libjansson.so.4", "libz.so.1", "libpcre2-8.so.0", "libutf8proc.so.2", "ld-linux-x86-64.so.2",
                               "ld-linux-aarch64.so.1"}


def test_internal_names_of_the_static_library_have_a_prefix(libdir):
    names = {line.split()[-1] for line in
             run(["nm", "-g", "--defined-only", libdir / "libcotan.a"]).splitlines()
             if len(line.split()) == 3}
    if SANITIZED:
        names = {n for n in names if "asan" not in n}
    foreign = {n for n in names if not n.startswith("ct_")}
    assert len(names) > 700 and foreign == set()
    public = {line.split()[-1] for line in
              run(["nm", "-D", "--defined-only", libdir / "libcotan.so"]).splitlines()}
    internal = names - public
    assert sorted(n for n in internal if not n.startswith("ct__")) == []


def test_every_declared_function_is_exported(installed, libdir):
    """A function in a header that the library lacks would only fail in a user's link."""
    text = "\n".join(p.read_text() for p in (installed / "include/cotan").glob("*.h"))
    text = re.sub(r"//.*", "", text)
    # `CT_API ct_tensor ct_add_at(...)` and `CT_API ct_tensor(ct_add)(...)`
    declared = set(re.findall(r"CT_API[^;(]*\b(ct_\w+)\s*\((?!ct_\w+\))", text))
    declared |= set(re.findall(r"CT_API[^;(]*\((ct_\w+)\)\(", text))
    exported = {line.split()[-1] for line in
                run(["nm", "-D", "--defined-only", libdir / "libcotan.so"]).splitlines()}
    assert len(declared) > 250 and declared - exported == set()


def test_a_program_with_pkg_config(flags, libdir, tmp_path):
    run(["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *SANITIZE, SOURCES / "linear.c",
         "-o", tmp_path / "linear", *flags("--cflags", "--libs")])
    check(tmp_path / "linear", libdir)


def test_a_static_program_with_pkg_config(flags, tmp_path):
    libs = " ".join(flags("--static", "--libs")).replace("-lcotan", "-l:libcotan.a").split()
    run(["cc", *SANITIZE, SOURCES / "linear.c", "-o", tmp_path / "linear", *flags("--cflags"), *libs])
    check(tmp_path / "linear")
    assert "libcotan" not in run(["readelf", "-d", tmp_path / "linear"])


PLUGIN = r"""
#include <cotan/cotan.h>
#include <stdio.h>
int plug(void) {
    CT_SCOPE;
    ct_set_threads(3);
    ct_tensor x = ct_exp(ct_mul(ct_iota(CT_F32, CT_DIMS(3000, 100), 1), ct_f(0)));
    printf("sum %g\n", ct_item(ct_sum(x)));
    return ct_failed();
}
"""
HOST = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *use(void *path) {
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*plug)(void) = (int (*)(void))dlsym(plugin, "plug");
    int failed = plug();
    return dlclose(plugin) == 0 && !failed ? path : NULL;
}
int main(int n, char **words) {
    for (int i = 0; i < 2; i++) { // the second time it is loaded anew
        pthread_t thread;
        void *used = NULL;
        pthread_create(&thread, NULL, use, words[n - 1]);
        pthread_join(thread, &used);
        printf("%s\n", used ? "closed" : "failed");
    }
    usleep(100000);
}
"""


def test_a_plugin_may_be_closed(flags, libdir, tmp_path):
    """The library stays: its threads, and the ends of those that used it, need its code."""
    (tmp_path / "plugin.c").write_text(PLUGIN)
    (tmp_path / "host.c").write_text(HOST)
    run(["cc", *SANITIZE, "-shared", "-fPIC", tmp_path / "plugin.c", "-o", tmp_path / "plugin.so",
         *flags("--cflags", "--libs")])
    run(["cc", *SANITIZE, tmp_path / "host.c", "-o", tmp_path / "host", "-ldl", "-pthread"])
    env = os.environ | {"LD_LIBRARY_PATH": str(libdir)}
    assert run([tmp_path / "host", tmp_path / "plugin.so"], env=env) == "sum 300000\nclosed\n" * 2


PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES C)
find_package(cotan 0.1 REQUIRED COMPONENTS static)
add_executable(shared ${SOURCE})
target_link_libraries(shared PRIVATE cotan::cotan)
add_executable(static ${SOURCE})
target_link_libraries(static PRIVATE cotan::static)
"""


def test_programs_with_find_package(installed, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    build = tmp_path / "build"
    run(["cmake", "-S", tmp_path, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}",
         f"-DSOURCE={SOURCES / 'linear.c'}", f"-DCMAKE_C_FLAGS={' '.join(SANITIZE)}"])
    run(["cmake", "--build", build])
    assert check(build / "shared") == check(build / "static")
    assert "[libcotan.so.0.1]" in run(["readelf", "-d", build / "shared"])
    assert "libcotan" not in run(["readelf", "-d", build / "static"])


def test_another_version_is_refused(installed, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.replace("cotan 0.1", "cotan 0.2"))
    done = subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja",
                           f"-DCMAKE_PREFIX_PATH={installed}"], text=True, capture_output=True)
    assert done.returncode != 0 and "0.1.0" in done.stderr
