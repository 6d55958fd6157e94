"""scripts/fuzz: what it refuses to fuzz, and what counts as a finding."""
import os
import re
import shutil
import subprocess

import pytest


@pytest.fixture
def fuzz(tmp_path):
    """The script in a tree of its own, whose random graphs are a shell command."""
    for folder in ("scripts", "tests/fuzz/harness", "tests/fuzz/corpus/npy", "build/tests/fuzz"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tests/fuzz/harness/npy.c").touch()
    shutil.copy("scripts/fuzz", tmp_path / "scripts/fuzz")

    def run(name, command=None):
        program = tmp_path / "build/tests/fuzz/test_random_graphs_slow"
        if command:
            program.write_text(f"#!/bin/sh\n{command}\n")
            program.chmod(0o755)
        env = {k: v for k, v in os.environ.items() if k != "COTAN_VERIFY"} | {"COTAN_FUZZ_SEED": "7"}
        done = subprocess.run([tmp_path / "scripts/fuzz", "1", name], capture_output=True, text=True, timeout=60, env=env)
        return done.returncode, re.sub(r"^fuzz graphs: \d+ graphs", "fuzz graphs: N graphs", done.stdout), done.stderr

    return run


@pytest.mark.parametrize("name", ["npx", "n.y", "harness.h", "../harness/npy", ""])
def test_unknown_names_are_refused(fuzz, tmp_path, name):
    assert fuzz(name) == (2, "", f'scripts/fuzz: there is no "{name}" to fuzz; there are graphs, npy\n')
    assert not (tmp_path / "build-fuzz").exists()


def test_something_is_run_however_late_it_is(fuzz, tmp_path):
    (tmp_path / "bin").mkdir()
    date = tmp_path / "bin/date"  # two seconds pass between any two looks at it
    date.write_text('#!/bin/sh\necho . >>ticks\necho $((1000 + 2 * $(wc -l <ticks)))\n')
    date.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{date.parent}:{os.environ['PATH']}")
        assert fuzz("graphs", "exit 1")[:2] == (
            1, "fuzz graphs: N graphs, seeds from 7, A FINDING, see build-fuzz/graphs.log\n")


@pytest.mark.parametrize("command, code, found", [
    ('[ "$COTAN_VERIFY" = 1 ]', 0, "no finding"),  # which run-tests sets, too
    ("exit 1", 1, "A FINDING, see build-fuzz/graphs.log"),
    ("kill -SEGV $$", 1, "A FINDING, see build-fuzz/graphs.log"),
    ("exit 100", 2, "NOT RUN TO ITS END (status 100), see build-fuzz/graphs.log"),  # what the program says itself
    ("kill -KILL $$", 2, "NOT RUN TO ITS END (status 137), see build-fuzz/graphs.log"),  # as when memory is out
    (None, 2, "NOT RUN TO ITS END (status 127), see build-fuzz/graphs.log"),
])
def test_findings(fuzz, command, code, found):
    assert fuzz("graphs", command) == (code, f"fuzz graphs: N graphs, seeds from 7, {found}\n", "")
