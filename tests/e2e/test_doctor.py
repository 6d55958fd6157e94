"""cotan doctor and cotan explain: what the machine has, and what error codes mean."""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "cotan"


def cotan(*words, **env):
    base = {k: v for k, v in os.environ.items() if k not in ("COTAN_THREADS", "COTAN_CC", "COTAN_DEVICE")}
    return subprocess.run([str(COTAN), *words], capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL, env={**base, **env})


def findings(done):
    """{what: (word, text)} of the lines, and what mends them."""
    found, mends, last = {}, {}, None
    for line in done.stdout.splitlines():
        if m := re.fullmatch(r" +mend it: (.+)", line):
            mends[last] = m.group(1)
        else:
            m = re.fullmatch(r"(ok|slow|BAD) +(processor|cores|memory|compiler|cache|libraries|device cpu)  +(.+)", line)
            assert m, line
            found[last := m.group(2)] = (m.group(1), m.group(3))
    assert list(found) == ["processor", "cores", "memory", "compiler", "cache", "libraries", "device cpu"]
    return found, mends


def test_a_sound_machine(tmp_path):
    done = cotan("doctor", COTAN_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    found, mends = findings(done)
    assert not any(word == "BAD" for word, _ in found.values())
    assert "a kernel was compiled in" in found["compiler"][1]
    assert str(tmp_path) + ": 1 files" in found["cache"][1]
    assert found["device cpu"][1].startswith("a step with its gradient agrees with the reference: off by ")
    again, _ = findings(cotan("doctor", COTAN_CACHE_DIR=str(tmp_path)))
    assert "a kernel was loaded from the cache in" in again["compiler"][1]


def test_no_compiler():
    found, mends = findings(done := cotan("doctor", PATH=""))
    assert done.returncode == 0
    assert found["compiler"] == ("slow", "neither cc, gcc nor clang is on PATH: kernels are interpreted: the same bits, "
                                 "several times slower")
    assert mends["compiler"] == "install gcc or clang"
    assert found["device cpu"][0] == "ok"


@pytest.mark.parametrize("what,env,text,mend", [
    ("cores", {"COTAN_THREADS": "many"}, 'COTAN_THREADS is "many", not a whole number from 1 to 256',
     "unset COTAN_THREADS, or set it to 1 to 256"),
    ("compiler", {"COTAN_CC": "/bin/false"}, "it made nothing and gave no reason",
     "install gcc or clang, set COTAN_CC to one, or to none to have kernels interpreted"),
    ("cache", {"COTAN_CACHE_DIR": "here"}, 'COTAN_CACHE_DIR is "here", not an absolute path',
     "unset COTAN_CACHE_DIR, or name an absolute path"),
])
def test_what_is_wrong_is_named(what, env, text, mend):
    done = cotan("doctor", **env)
    found, mends = findings(done)
    assert done.returncode == 1
    assert found[what][0] == "BAD" and found[what][1].endswith(text)
    assert mends[what] == mend


def test_explain():
    want = ("6  CT_E_SPENT: value of an older version is gone\n"
            "    Read the value before the variable is assigned, or ct_keep it.\n")
    for word in ("6", "spent", "SPENT", "CT_E_SPENT"):
        done = cotan("explain", word)
        assert (done.returncode, done.stdout) == (0, want)
    every = cotan("explain")
    assert every.returncode == 0 and want in every.stdout
    assert len(re.findall(r"^\d+  CT_E_\w+: .+\n    .+$", every.stdout, re.M)) == every.stdout.count("CT_E_")
    done = cotan("explain", "shap")
    assert (done.returncode, done.stderr) == (2, 'cotan: explain: there is no code "shap"; is SHAPE meant?\n')
    done = cotan("explain", "99")
    assert (done.returncode, done.stderr) == (2, 'cotan: explain: there is no code "99"; cotan explain lists them\n')
