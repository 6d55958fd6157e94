"""Each public header stands alone, in C and in C++."""
import os
import re
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


@pytest.mark.parametrize("header", sorted(p.name for p in (ROOT / "include/cotan").glob("*.h")))
def test_header_reads_as_a_manual(header):
    """What formatting breaks: a heading is one line, 100 wide, above its declarations; a declaration begins with its type and name."""
    lines = (ROOT / "include/cotan" / header).read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("// ----"):
            assert re.fullmatch(r"// -+ [\w -]+", line) and len(line) == 100, f"{header}:{number}: {line}"
            assert lines[number] == "" and not lines[number + 1].startswith("// ----"), f"{header}:{number}: {line}"
        assert not re.fullmatch(r"CT_API [^(]*", line), f"{header}:{number}: the name stands on the next line"
        assert not re.fullmatch(r" {8,}.*; // .*", line), f"{header}:{number}: the comment belongs above"
