"""The cache is huggingface_hub's: what either brings, the other finds without asking again, and the files are the same."""
import os
import subprocess
import sys

import pytest

pytest.importorskip("huggingface_hub", minversion="1", reason="huggingface_hub is older than 1")

from support.mirror import COMMIT, Mirror  # noqa: E402
from support.program import command  # noqa: E402

FILES = {"config.json": b"{}", "sub/note.txt": b"x" * 1000, "model.safetensors": bytes(range(256)) * 4000}


@pytest.fixture
def mirror():
    made = Mirror(FILES)
    yield made
    made.close()


def environment(mirror, cache, **more):
    return {**{k: v for k, v in os.environ.items() if "proxy" not in k.lower()}, "HF_ENDPOINT": mirror.endpoint, "HF_HUB_CACHE": str(cache),
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", **more}


def theirs(mirror, cache, **more):
    code = "import huggingface_hub as h; print(h.snapshot_download('org/small'))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(mirror, cache, **more), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def ours(mirror, cache, *args, **more):
    done = subprocess.run([*command("cotan"), "pull", "org/small", *args], env=environment(mirror, cache, **more), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def layout(cache):
    """Every file and link below the cache, but for what each keeps for itself."""
    found = {}
    for path in sorted(cache.rglob("*")):
        name = str(path.relative_to(cache))
        own = name.startswith((".locks", "CACHEDIR.TAG")) or "/trees" in name
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file() and not own:
            found[name] = path.read_bytes()
    return found


def test_the_same_files(mirror, tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    folder = theirs(mirror, a)
    assert ours(mirror, b, "--include", "*") == folder.replace(str(a), str(b))
    assert layout(a) == layout(b) and f"models--org--small/snapshots/{COMMIT}/sub/note.txt" in layout(a)


def test_each_finds_the_others(mirror, tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    folder = theirs(mirror, a)
    assert ours(mirror, a, HF_HUB_OFFLINE="1") == folder
    mirror.requests.clear()
    ours(mirror, a)
    assert not [r for r in mirror.requests if r[0] == "cdn"]
    folder = ours(mirror, b, "--include", "*")
    assert theirs(mirror, b, HF_HUB_OFFLINE="1") == folder
    mirror.requests.clear()
    theirs(mirror, b)
    assert not [r for r in mirror.requests if r[0] == "cdn" and r[1] == "GET"]
