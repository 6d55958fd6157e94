"""Programs of the build, as commands: under the emulator where they were built for another machine."""
import os
import shlex
from pathlib import Path

BUILD = Path(os.environ.get("COTAN_BUILD", Path(__file__).resolve().parents[2] / "build"))
EMULATOR = shlex.split(os.environ.get("COTAN_EMULATOR", ""))


def command(path):
    return [*EMULATOR, str(BUILD / path)]
