"""Runs tests/data/chat/lines.c: chat templates rendered by the library, a line of JSON each."""
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build"))
DATA = ROOT / "tests/data/chat"
SANITIZED = "COTAN_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()


class Renderer:
    """A process that answers requests (tests/data/chat/lines.c says what they hold)."""

    def __init__(self, folder):
        program = folder / "lines"
        flags = ["-fsanitize=address,undefined"] if SANITIZED else []
        subprocess.run([os.environ.get("CC", "cc"), "-std=gnu17", *flags, "-I", ROOT / "include", "-I", BUILD / "derived",
                        DATA / "lines.c", "-o", program, BUILD / "libcotan.a", "-ljansson", "-lpcre2-8", "-lutf8proc", "-lz", "-lm", "-lpthread", "-ldl"],
                       check=True)
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
                                        env={**os.environ, "TZ": "UTC"})

    def ask(self, **request):
        """{"text": ...} or {"error": ...}, without the place in the program."""
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the program ended: {self.process.wait()}"
        answer = json.loads(line)
        if "error" in answer:
            answer["error"] = answer["error"].split(": ", 2)[-1]
        return answer

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0
