"""scripts/run-tests counts single cases, and nothing that goes wrong is lost."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = r"""
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void good(void **state) { (void)state; printf("noise without end"); fflush(stdout); }
static void bad(void **state) { (void)state; assert_string_equal("a<b>&\"]]>", "c"); }
static void left_out(void **state) { (void)state; skip(); }
static void dies(void **state) { (void)state; abort(); }
static void dies_once(void **state) {
    (void)state;
    if (access("died", F_OK) == 0) return;
    fclose(fopen("died", "w"));
    puts("last words");
    exit(255);
}
static void *wild(void *at) { *(volatile int *)at = 1; return at; }
static void crashes(void **state) { *(volatile int *)*state = 1; }
static void crashes_in_a_thread(void **state) {
    (void)state;
    pthread_t id;
    pthread_create(&id, NULL, wild, NULL);
    pthread_join(id, NULL);
}
static int shared;
static void *counts(void *at) { for (int i = 0; i < 1000; i++) shared++; return at; }
static void races(void **state) {
    (void)state;
    pthread_t id[2];
    for (int i = 0; i < 2; i++) pthread_create(&id[i], NULL, counts, NULL);
    for (int i = 0; i < 2; i++) pthread_join(id[i], NULL);
    assert_string_equal(getenv("COTAN_CC"), "none");
}
static void hangs(void **state) { (void)state; sleep(100); }
static int leaves(void **state) { (void)state; exit(7); }
int main(void) {
    (void)good, (void)bad, (void)left_out, (void)dies, (void)hangs, (void)leaves, (void)dies_once, (void)crashes, (void)crashes_in_a_thread;
    const struct CMUnitTest tests[] = {%s};
    return cmocka_run_group_tests(tests, NULL, %s);
}
"""


@pytest.fixture
def project(tmp_path):
    """A small project with a copy of the script; call it to build a C test and run everything."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "scripts/run-tests", tmp_path / "scripts")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / ".venv/bin/python").chmod(0o755)
    (tmp_path / "tests/allowed-skips.txt").write_text("# none\n")

    def go(cases=(), teardown="NULL", ci=False, skips=None, arguments=(), flags=()):
        if cases:
            (tmp_path / "build/tests").mkdir(parents=True, exist_ok=True)
            source = tmp_path / "tests/test_c.c"
            source.write_text(PROGRAM % (", ".join(f"cmocka_unit_test({c})" for c in cases), teardown))
            subprocess.run(["gcc", *flags, "-o", str(tmp_path / "build/tests/test_c"), str(source),
                            "-x", "c", str(ROOT / "tests/support/faults.c"), "-lcmocka"],
                           check=True)
        if skips is not None:
            (tmp_path / "tests/allowed-skips.txt").write_text(skips)
        env = {k: v for k, v in os.environ.items() if k != "CI"} | ({"CI": "true"} if ci else {})
        done = subprocess.run([sys.executable, str(tmp_path / "scripts/run-tests"), *arguments],
                              env=env, text=True, capture_output=True)
        return done.returncode, done.stdout + done.stderr

    go.root = tmp_path
    return go


def closing(text):
    return text.splitlines()[-1]


def test_passing_cases_are_counted_one_by_one(project):
    status, text = project(["good", "good"])
    assert (status, closing(text)) == (0, "2 passed, 0 failed, 0 skipped")


def test_the_slowest_cases_are_listed(project):
    (project.root / "tests/test_py.py").write_text("import time\ndef test_naps(): time.sleep(0.3)\ndef test_quick(): pass\n")
    status, text = project(["good"], arguments=["--slowest", "1"])
    assert (status, closing(text)) == (0, "3 passed, 0 failed, 0 skipped")
    (line,) = [line for line in text.splitlines() if " s  " in line]
    assert line.endswith(" s  tests/test_py.py::test_naps") and 0.3 <= float(line.split()[0]) < 5


def test_a_failing_case_is_shown_with_its_message(project):
    status, text = project(["good", "bad"])
    assert (status, closing(text)) == (1, "1 passed, 1 failed, 0 skipped")
    assert "FAILED tests/test_c:bad" in text and '"a<b>&"' in text


def test_a_crash_is_a_failure_and_names_its_case(project):
    status, text = project(["good", "dies", "good"])
    assert (status, closing(text)) == (1, "0 passed, 1 failed, 0 skipped")
    assert "killed by SIGABRT in dies" in text


def test_a_crash_in_another_thread_tells_its_signal(project):
    """cmocka alone would end by exit(-1), and say nothing; one in the thread of a case fails that case, and others follow."""
    status, text = project(["good", "crashes_in_a_thread", "good"])
    assert (status, closing(text)) == (1, "0 passed, 1 failed, 0 skipped")
    assert "killed by SIGSEGV in crashes_in_a_thread" in text
    status, text = project(["good", "crashes", "good"])
    assert (status, closing(text)) == (1, "2 passed, 1 failed, 0 skipped")
    assert "FAILED tests/test_c:crashes\n" in text


def test_a_program_that_dies_once_is_told_so(project):
    """A second run finds the case in which a program dies; where it passes, its last case is none of that."""
    status, text = project(["good", "dies_once", "good"])
    assert (status, closing(text)) == (1, "0 passed, 1 failed, 0 skipped")
    assert "FAILED tests/test_c\n    died once (exit status 255), a second run passed\n" in text
    assert "last words" in text


def test_a_race_is_a_failure_of_its_program(project):
    """In a build with the thread sanitizer kernels are interpreted, and of Python only what has threads is run."""
    (project.root / "tests/e2e").mkdir()
    (project.root / "tests/tsan-suppressions.txt").write_text("")
    for name in ("e2e/test_serve.py", "test_of_python.py"):
        (project.root / "tests" / name).write_text("def test_it():\n    pass\n")
    (project.root / "build").mkdir()
    (project.root / "build/CMakeCache.txt").write_text("COTAN_TSAN:BOOL=ON\n")
    status, text = project(["races", "good"], flags=["-fsanitize=thread"])
    assert (status, closing(text)) == (1, "3 passed, 1 failed, 0 skipped")
    assert "FAILED tests/test_c\n    exit status 66\n" in text and "data race" in text
    assert project(arguments=["--targets"]) == (0, "program tests_test_c\n")


def test_a_hanging_program_is_stopped(project):
    status, text = project(["hangs"], arguments=["--timeout", "1"])
    assert (status, closing(text)) == (1, "0 passed, 1 failed, 0 skipped")
    assert "stopped after 1 s" in text


def test_a_bad_exit_status_after_good_cases_is_a_failure(project):
    status, text = project(["good"], teardown="leaves")
    assert (status, closing(text)) == (1, "0 passed, 1 failed, 0 skipped")
    assert "exit status 7" in text


def test_a_program_that_was_not_built_is_a_failure(project):
    project(["good"])
    (project.root / "build/tests/test_c").unlink()
    status, text = project()
    assert (status, closing(text)) == (1, "0 passed, 1 failed, 0 skipped")
    assert "was not built" in text


def test_an_unlisted_skip_fails_in_ci_only(project):
    status, text = project(["good", "left_out"])
    assert (status, closing(text)) == (0, "1 passed, 0 failed, 1 skipped")
    assert "not listed" in text
    status, text = project(ci=True)
    assert (status, closing(text)) == (1, "1 passed, 1 failed, 0 skipped")
    status, text = project(ci=True, skips="tests/test_c:left_* needs what is not here\n")
    assert (status, closing(text)) == (0, "1 passed, 0 failed, 1 skipped")
    status, text = project(skips="tests/test_c:left_out\n")
    assert (status, closing(text)) == (
        1, "tests/allowed-skips.txt:1: no reason given for tests/test_c:left_out")


def test_python_cases_count_too(project):
    (project.root / "tests/test_p.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.parametrize('x', [1, 2])\n"
        "def test_good(x): assert os.path.isabs(os.environ['COTAN_BUILD'])\n"
        "def test_bad(): assert 1 == 2\n"
        "@pytest.mark.skip(reason='why not')\n"
        "def test_left_out(): pass\n")
    (project.root / "tests/test_q.py").write_text("import os\nos._exit(3)\n")
    status, text = project()
    assert (status, closing(text)) == (1, "2 passed, 2 failed, 1 skipped")
    assert "FAILED tests/test_p.py::test_bad" in text and "why not" in text
    assert "FAILED tests/test_q.py\n    exit status 3" in text


def test_another_machine_runs_units_and_ops(project, monkeypatch):
    """An emulator that notes what it is given stands in front of programs; Python files are told of it."""
    emulator = project.root / "bin/qemu-aarch64"
    emulator.parent.mkdir()
    emulator.write_text(f'#!/bin/sh\necho "$1" >>{project.root}/emulated\nexec "$@"\n')
    emulator.chmod(0o755)
    monkeypatch.setenv("PATH", f"{emulator.parent}:{os.environ['PATH']}")
    project(["good", "left_out"])
    for folder in ("tests/unit", "build/tests/unit", "build-aarch64/tests/unit"):
        (project.root / folder).mkdir(parents=True)
    (project.root / "tests/unit/test_u.c").write_text("")
    for build in ("build", "build-aarch64"):
        shutil.copy(project.root / "build/tests/test_c", project.root / build / "tests/unit/test_u")
    (project.root / "tests/unit/test_native.py").write_text("def test_native(): pass\n")
    (project.root / "tests/unit/test_p.py").write_text(
        "import os\nfrom support.program import command\n"
        "def test_here(): assert os.environ['COTAN_BUILD'].endswith('/build')\n"
        "def test_there(): assert command('x') == ['qemu-aarch64', os.environ['COTAN_BUILD'] + '/x']\n")
    (project.root / "tests/support").mkdir()
    shutil.copy(ROOT / "tests/support/program.py", project.root / "tests/support")
    status, text = project(["good", "left_out"], arguments=["--machine", "aarch64"], ci=True,
                           skips="tests/*:left_out  of no interest\n")
    assert (status, closing(text)) == (1, "6 passed, 2 failed, 3 skipped"), text
    assert "FAILED tests/unit/test_p.py::test_there" in text
    assert "FAILED aarch64:tests/unit/test_p.py::test_here" in text and "ok   aarch64:tests/unit/test_u: 1 passed" in text
    assert (project.root / "emulated").read_text() == f"{project.root}/build-aarch64/tests/unit/test_u\n"


def test_another_device_runs_what_asks_for_devices(project):
    """Of tests/ops in parts, which are the whole: a case that passes on this device alone fails in one of them, once."""
    project(["good"])
    for path in ("tests/unit/test_u", "tests/fuzz/test_random_graphs_slow"):
        (project.root / "build" / path).parent.mkdir(parents=True)
        shutil.copy(project.root / "build/tests/test_c", project.root / "build" / path)
    for folder in ("unit", "ops"):
        (project.root / "tests" / folder).mkdir()
        (project.root / "tests" / folder / "test_other.py").write_text("def test_here(): pass\n")
    (project.root / "tests/unit/test_u.c").write_text('getenv("COTAN_TEST_DEVICES")')
    shutil.copy(ROOT / "tests/ops/conftest.py", project.root / "tests/ops")
    (project.root / "tests/ops/test_o.py").write_text(
        "import os\nimport pytest\nDEVICE = os.environ.get(\"COTAN_TEST_DEVICES\", \"cpu\")\n"
        "@pytest.mark.parametrize(\"n\", range(11))\n"
        "def test_guarded(n): assert os.environ.get('COTAN_CHECK') == ('bounds' if DEVICE == 'there' else None)\n"
        "def test_here(): assert DEVICE == 'cpu'\n")
    status, text = project(arguments=["--device", "there"])
    # test_c, test_u twice, the random graphs; two other files; twelve cases here, and there
    assert (status, closing(text)) == (1, "29 passed, 1 failed, 0 skipped"), text
    assert "FAILED there.4:tests/ops/test_o.py::test_here" in text and "ok   there:tests/unit/test_u: 1 passed" in text


def test_names_select_by_path(project):
    project(["good"])
    (project.root / "tests/test_c.py").write_text("def test_good(): pass\n")
    for names, passed in ((["test_c"], 2), (["test_c.c"], 1), (["tests/test_c.py"], 1), (["test_c.c", "c.py"], 2)):
        status, text = project(arguments=names)
        assert (status, closing(text)) == (0, f"{passed} passed, 0 failed, 0 skipped"), names


def test_a_name_that_selects_nothing_is_an_error(project):
    project(["good"])
    for names, idle in ((["nosuch"], "'nosuch'"), (["test_c", "nosuch", "test_d.py"], "'nosuch', 'test_d.py'")):
        status, text = project(arguments=names)
        assert (status, text) == (1, f"no test has {idle} in its path; paths are such as tests/test_c.c\n")
    (project.root / "tests/test_c.c").unlink()
    assert project() == (1, "0 passed, 0 failed, 0 skipped\n")
    assert project(arguments=["test_c"]) == (1, "there are no tests\n")
