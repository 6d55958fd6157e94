"""scripts/setup names what is missing by the distribution's own names."""
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = "gcc libc6-dev cmake ninja-build pkg-config libjansson-dev zlib1g-dev libpcre2-dev libutf8proc-dev"
FEDORA = "gcc glibc-devel cmake ninja-build pkgconf-pkg-config jansson-devel 'pkgconfig(zlib)' pcre2-devel utf8proc-devel"
ARCH = "gcc glibc cmake ninja pkgconf jansson zlib pcre2 libutf8proc"
HOW = "setup: some packages are missing. Install them with this command, then try again:\n    "


def call(folder, what, **programs):
    """The status and words of scripts/setup where nothing else is installed."""
    for name, text in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    done = subprocess.run(["/bin/sh", ROOT / "scripts/setup", *what], env={"PATH": str(folder)}, text=True,
                          capture_output=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("programs,words", [
    ({"apt_get": "exit 9", "id": "echo 1000"},
     f"{HOW}sudo apt-get update && sudo apt-get install -y --no-install-recommends {DEBIAN}\n"),
    ({"dnf": "exit 9"}, f"{HOW}sudo dnf install {FEDORA}\n"),
    ({"pacman": "exit 9"}, f"{HOW}sudo pacman -S --needed {ARCH}\n"),
    ({}, f"setup: missing: {DEBIAN} (Debian's names; this system has neither apt-get, dnf nor pacman)\n"),
])
def test_the_command_is_told(tmp_path, programs, words):
    assert call(tmp_path, ["run"], **programs) == (1, words)


def test_what_other_libraries_need(tmp_path):
    status, text = call(tmp_path, ["bench"], apt_get="exit 9", id="echo 1000")
    assert status == 1 and f"{DEBIAN} g++" in text and "clang" not in text


def test_libraries_of_another_machine(tmp_path):
    status, text = call(tmp_path, ["test-all"], apt_get="exit 9", id="echo 1000", uname="echo x86_64")
    assert status == 1 and text.startswith(
        f"{HOW}sudo dpkg --add-architecture arm64 && sudo apt-get update && sudo apt-get install ")
    assert " qemu-user gcc-aarch64-linux-gnu " in text
    assert text.endswith(" libjansson-dev:arm64 zlib1g-dev:arm64 libpcre2-dev:arm64 libutf8proc-dev:arm64 libcmocka-dev:arm64\n")
    status, text = call(tmp_path, ["test-all"], uname="echo aarch64")
    assert status == 1 and "arm64" not in text and "rustc" in text
    (tmp_path / "apt-get").unlink()
    status, text = call(tmp_path, ["test-all"], dnf="exit 9", uname="echo x86_64")
    assert status == 1 and text.startswith(f"{HOW}sudo dnf install {FEDORA} gcc-c++ ") and "arm64" not in text


def test_what_it_installs(tmp_path):
    """As root: the calls of apt-get, and its words only where it fails."""
    calls = tmp_path / "calls"
    log = f'echo "$0 $*" >>{calls}'
    status, text = call(tmp_path, ["run"], apt_get=log, id="echo 0", mktemp=f"echo {tmp_path}/log", rm="exit 0")
    assert (status, text) == (0, f"setup: installing {DEBIAN}\n")
    assert calls.read_text() == (f"{tmp_path}/apt-get update\n"
                                 f"{tmp_path}/apt-get install -y --no-install-recommends {DEBIAN}\n")
    status, text = call(tmp_path, ["run"], apt_get="echo no such host; exit 1", cat=f'while read l; do echo "$l"; done <"$1"')
    assert status == 1
    assert text == (f"setup: installing {DEBIAN}\nno such host\n"
                    f"setup: apt-get failed; the command was: apt-get install -y --no-install-recommends {DEBIAN}\n")


def test_nonsense(tmp_path):
    assert call(tmp_path, []) == (2, "usage: scripts/setup run|test|test-tsan|test-all|parity|bench\n")


def test_what_the_thread_sanitizer_needs(tmp_path):
    status, text = call(tmp_path, ["test-tsan"], apt_get="exit 9", id="echo 1000", uname="echo x86_64")
    assert status == 1 and text.startswith(f"{HOW}sudo apt-get update && sudo apt-get install ")
    assert text.endswith(" libclang-rt-dev\n")
    status, text = call(tmp_path, ["test"], uname="echo x86_64")
    assert status == 1 and "libclang-rt" not in text
