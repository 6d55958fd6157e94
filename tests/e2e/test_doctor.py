"""cotan doctor and cotan explain: what the machine has, and what error codes mean."""
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")).resolve() / "cotan"


def cotan(*words, **env):
    """A variable that is None is not set."""
    base = {k: v for k, v in os.environ.items() if k not in ("COTAN_THREADS", "COTAN_CC", "COTAN_DEVICE", "COTAN_VERIFY")}
    base = {k: v for k, v in (base | env).items() if v is not None}
    with tempfile.TemporaryDirectory() as folder:  # drivers of OpenCL make folders where HOME says, "here" among others
        return subprocess.run([str(COTAN), *words], capture_output=True, text=True, timeout=300, cwd=folder,
                              stdin=subprocess.DEVNULL, env=base)


NO_COMPILER = "install gcc or clang, set COTAN_CC to one, or to none to have kernels interpreted"
OTHER_MACHINE = ("unset COTAN_MARCH, or set it to an architecture that the compiler knows and this processor runs; else "
                 "repair the compiler")
SETTING = "unset that variable, or set it as described by cotan help"


LOOKED_AT = ["processor", "cores", "memory", "settings", "compiler", "cache", "libraries", "device cpu", "devices", "serve", "pull"]


def findings(done):
    """{what: (word, text)} of the lines, and their hints."""
    found, mends, last = {}, {}, None
    for line in done.stdout.splitlines():
        if m := re.fullmatch(r" +hint: (.+)", line):
            mends[last] = m.group(1)
        else:
            m = re.fullmatch(rf"(ok|slow|warn|BAD) +({'|'.join(LOOKED_AT)})  +(.+)", line)
            assert m, line
            found[last := m.group(2)] = (m.group(1), m.group(3))
    assert list(found) == LOOKED_AT
    return found, mends


def test_a_sound_machine(tmp_path):
    done = cotan("doctor", COTAN_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    found, mends = findings(done)
    assert not any(word == "BAD" for word, _ in found.values())
    assert found["settings"] == ("ok", "the usual ones: the environment asks for no other")
    assert re.fullmatch(r"cpu; ref; opencl:0(; opencl:\d+)*", found["devices"][1])
    assert found["cache"] == ("ok", f"{tmp_path}: 0 files, 0.0 MB")
    assert re.fullmatch(r"jansson [\d.]+, zlib [\d.]+, PCRE2 [\d.]+, utf8proc [\d.]+", found["libraries"][1])
    assert found["serve"] == ("ok", "libmicrohttpd is there") and found["pull"] == ("ok", "libcurl is there")
    assert found["device cpu"][1].startswith("a step with its gradient agrees with the reference: off by ")
    again, _ = findings(cotan("doctor", COTAN_CACHE_DIR=str(tmp_path)))
    for compiler in (found["compiler"], again["compiler"]):
        assert re.fullmatch(r"/\S+: a kernel was compiled in \d+ ms", compiler[1])
    assert int(re.search(r": (\d+) files, ", again["cache"][1])[1]) > 0  # those of the step


def test_what_is_asked_for_is_said():
    found, _ = findings(cotan("doctor", COTAN_DEVICE="ref", COTAN_FUSE="0"))
    assert found["settings"] == ("ok", "COTAN_DEVICE=ref, COTAN_FUSE=0")


def test_libraries_of_one_command():
    """What only cotan serve or cotan pull needs keeps nothing else from working."""
    found, mends = findings(done := cotan("doctor", COTAN_HTTP_LIBRARY="/none.so", COTAN_CURL_LIBRARY="/none.so"))
    assert done.returncode == 0
    assert found["serve"] == ("warn", "cotan serve needs libmicrohttpd, and /none.so is not there")
    assert mends["serve"] == "install it (Debian: libmicrohttpd12, Fedora and Arch: libmicrohttpd)"
    assert found["pull"] == ("warn", "cotan pull needs libcurl, and /none.so is not there")
    assert mends["pull"] == "install it (Debian: libcurl4, Fedora: libcurl, Arch: curl)"
    found, mends = findings(cotan("doctor", COTAN_HTTP_LIBRARY="libc.so.6"))
    assert found["serve"] == ("warn", "libc.so.6 has no MHD_start_daemon: it is no libmicrohttpd") and "serve" not in mends


def test_a_compiler_that_broke(tmp_path):
    """The cache holds what it compiled before; that says nothing of what it does now."""
    compiler, broken = tmp_path / "cc", tmp_path / "broken"
    compiler.write_text(f'#!/bin/sh\n[ -e {broken} ] && exit 1\nexec cc "$@"\n')
    compiler.chmod(0o755)
    env = {"COTAN_CC": str(compiler), "COTAN_CACHE_DIR": str(tmp_path / "cache")}
    assert cotan("doctor", **env).returncode == 0
    broken.touch()
    found, mends = findings(done := cotan("doctor", **env))
    assert done.returncode == 1
    assert found["compiler"] == ("BAD", f"cpu: no working C compiler: {compiler}: it made nothing and gave no reason")
    assert mends["compiler"] == NO_COMPILER
    assert found["device cpu"][0] == "ok"  # by what the cache has


UNUSABLE = "none is usable, every process compiles its kernels again: "
GIVE = "set COTAN_CACHE_DIR to a folder that belongs to you and that nobody else may write"


def test_why_there_is_no_cache(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    nothing = {"COTAN_CACHE_DIR": None, "XDG_CACHE_HOME": None}
    for env, why in [(nothing | {"HOME": None}, "HOME is not set"),
                     (nothing | {"HOME": "here"}, "HOME is not an absolute path"),
                     (nothing | {"HOME": f"{tmp_path}/none"}, f"{tmp_path}/none, which HOME names, is no folder"),
                     ({"COTAN_CACHE_DIR": f"{tmp_path}/file"}, f"{tmp_path}/file: exists and is not a folder"),
                     ({"COTAN_CACHE_DIR": f"{tmp_path}/open"}, f"{tmp_path}/open may be written by others"),
                     ({"COTAN_CACHE_DIR": "/" + "x" * 3100}, "the path of its folder is too long")]:
        found, mends = findings(done := cotan("doctor", **env))
        assert done.returncode == 0 and found["cache"] == ("slow", UNUSABLE + why)
        assert mends["cache"] == (GIVE if "HOME" in env else
                                  "unset COTAN_CACHE_DIR, or give it a folder that belongs to you and that nobody else may write")


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
    ("compiler", {"COTAN_CC": "/bin/false"}, "it made nothing and gave no reason", NO_COMPILER),
    ("compiler", {"COTAN_MARCH": "foo", "LC_ALL": "C"}, "bad value 'foo' for '-march=' switch", OTHER_MACHINE),
    ("compiler", {"COTAN_MARCH": "a b"}, 'cpu: COTAN_MARCH is "a b", not the name of an architecture', OTHER_MACHINE),
    ("settings", {"COTAN_DEVICE": "gpu"},
     'COTAN_DEVICE: device: there is no device "gpu": known are cpu, ref, opencl (or opencl:1), and async: or dry: before them', SETTING),
    ("settings", {"COTAN_FUSE": "2"}, 'COTAN_FUSE: it is "2", not 0 or 1', SETTING),
    ("settings", {"COTAN_CHECK": "all"},
     'COTAN_CHECK: there is no check "all": the variable is a list of ref, nan and bounds', SETTING),
    ("settings", {"COTAN_CHEK": "nan"}, "nobody reads COTAN_CHEK: is COTAN_CHECK meant?", SETTING),
    ("settings", {"COTAN_TREADS": "2"}, "nobody reads COTAN_TREADS: is COTAN_THREADS meant?", SETTING),
    ("cache", {"COTAN_CACHE_DIR": "here"}, 'COTAN_CACHE_DIR is "here", not an absolute path',
     "unset COTAN_CACHE_DIR, or name an absolute path"),
])
def test_what_is_wrong_is_named(what, env, text, mend):
    done = cotan("doctor", **env)
    found, mends = findings(done)
    assert done.returncode == 1
    assert found[what][0] == "BAD" and found[what][1].endswith(text)
    assert mends[what] == mend
    # Whatever fails for it is not to be reported, and no other line takes the blame.
    assert mends.get("device cpu", "fix what is bad above first") == "fix what is bad above first"
    assert [w for w in found if found[w][0] == "BAD" and w != "device cpu"] == [what]


def test_every_variable_that_is_read_is_known(tmp_path):
    """By Cotan, and by the repository's tests and scripts: none passes for another one's misspelling."""
    read = set()
    for folder in ("src", "cli", "tests", "scripts", "bench", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".c", ".h", ".py", ".sh", "") and path.is_file():
                text = path.read_text(errors="replace")
                read |= set(re.findall(r'(?:getenv\(|environ\.get\(|environ\[|env!\()"(COTAN_[A-Z0-9_]+)"|\$\{?(COTAN_[A-Z0-9_]+)', text))
    read = {a or b for a, b in read} | {"COTAN_FUSE", "COTAN_RS", "COTAN_VERIFY"}
    assert {"COTAN_FUZZ_SEED", "COTAN_TEST_ALL", "COTAN_THREADS"} < read
    usual = ("ok", "the usual ones: the environment asks for no other")
    shown = {"COTAN_CHECK", "COTAN_COMPILE", "COTAN_DEVICE", "COTAN_DUMP", "COTAN_EXPLAIN", "COTAN_FUSE", "COTAN_VERIFY"}
    others = {name: str(tmp_path) for name in read - shown - {"COTAN_THREADS", "COTAN_CC", "COTAN_MARCH", "COTAN_BF16_DOT"}}
    own = {"COTAN_MY_OWN_FOLDER": "1", "COTAN_CHEK": "", "COTAN": "1", "COTAN_": "1"}
    assert findings(cotan("doctor", **others, **own))[0]["settings"] == usual


def test_explain():
    want = ("6  CT_E_OVERWRITTEN: value of an older version is gone\n"
            "    Read the value before the variable is assigned, or ct_keep it.\n")
    for word in ("6", "overwritten", "OVERWRITTEN", "CT_E_OVERWRITTEN"):
        done = cotan("explain", word)
        assert (done.returncode, done.stdout) == (0, want)
    every = cotan("explain")
    assert every.returncode == 0 and want in every.stdout
    assert len(re.findall(r"^\d+  CT_E_\w+: .+\n    .+$", every.stdout, re.M)) == every.stdout.count("CT_E_")
    done = cotan("explain", "shap")
    assert (done.returncode, done.stderr) == (2, 'cotan: explain: there is no code "shap"; is SHAPE meant?\n')
    done = cotan("explain", "99")
    assert (done.returncode, done.stderr) == (2, 'cotan: explain: there is no code "99"; cotan explain lists them\n')


# --------------------------------------------------------------------------------------------- devices

def test_devices_are_listed_and_measured():
    done = cotan("devices", "--json")
    assert done.returncode == 0 and not done.stderr, done.stderr
    rows = {row["device"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert list(rows)[:3] == ["cpu", "ref", "opencl:0"] and all(row["usable"] for row in rows.values())
    for name in ("cpu", "opencl:0"):
        assert 1e8 < rows[name]["read_bandwidth"] < 1e13 and 1e8 < rows[name]["flops"] < 1e15 and rows[name]["memory"] > 1e8, rows
    assert rows["ref"]["read_bandwidth"] == rows["ref"]["flops"] == 0
    quick = cotan("devices", "--list")
    lines = quick.stdout.splitlines()
    assert lines[0].split() == ["device", "memory", "reads", "products", "what", "it", "is"]
    for name, line in zip(("cpu", "ref", "opencl:0"), lines[1:]):
        assert re.fullmatch(rf"{name} +[\d.]+ GB +- +- +\S.*", line), line


def test_without_opencl_the_rest_is_listed():
    done = cotan("devices", "--list", COTAN_OPENCL_LIBRARY="/none.so")
    assert done.returncode == 0
    assert done.stdout.splitlines()[3] == (
        "opencl      -         -           -              not usable: opencl: there is no OpenCL here: "
        "/none.so: cannot open shared object file: No such file or directory")
    found, _ = findings(cotan("doctor", COTAN_OPENCL_LIBRARY="/none.so"))
    assert found["devices"][1].startswith("cpu; ref; no opencl: opencl: there is no OpenCL here: /none.so: ")


def test_a_library_of_devices_that_is_not_there():
    missing = "device_load: /none.so: cannot open shared object file: No such file or directory"
    done = cotan("devices", "--list", COTAN_DEVICE_LIBRARY="/none.so")
    assert (done.returncode, done.stderr) == (1, f"cotan: {missing}\n") and len(done.stdout.splitlines()) > 3  # the others are told
    found, mends = findings(cotan("doctor", COTAN_DEVICE_LIBRARY="/none.so"))
    assert found["devices"][0] == "BAD" and found["devices"][1].endswith(f"; {missing}")
    assert mends["devices"] == "unset COTAN_DEVICE_LIBRARY, or let it name libraries that can be loaded"
