"""Each public header stands alone, in C and in C++."""
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build"))
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]


@pytest.mark.parametrize("compiler, language, standard", [
    ("gcc", "c", "gnu17"), ("clang", "c", "gnu17"), ("clang", "c++", "gnu++17")])
@pytest.mark.parametrize("header", sorted(p.name for p in (ROOT / "include/cotan").glob("*.h")))
def test_header_compiles_alone(compiler, language, standard, header):
    done = subprocess.run(
        [compiler, "-x", language, f"-std={standard}", *WARNINGS, "-fsyntax-only", "-I",
         str(ROOT / "include"), "-I", str(BUILD / "derived"), "-"],
        input=f"#include <cotan/{header}>\n", text=True, capture_output=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
