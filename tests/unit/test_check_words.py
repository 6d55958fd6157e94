"""scripts/check-words on small trees."""
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def check(root):
    done = subprocess.run([str(ROOT / "scripts/check-words"), str(root)], capture_output=True, text=True, timeout=60)
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("text, found", [
    ("// Is it a leaf?\n", "src/a.c:1: a comment that is a question: say what is true\n"),
    ("int n; // of max_texts\n", "src/a.c:1: 'max_texts': max_sequences\n"),
    ("\n// The run goes on with the next step.\n", "src/a.c:2: 'goes on with': continues\n"),
    ("static int finish(void) {\n", "src/a.c:1: finish is a static function of src/a.c and src/b.c: give it its file's word\n"),
])
def test_a_violation_is_a_line(tmp_path, text, found):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.c").write_text(text)
    (tmp_path / "src/b.c").write_text("// Returns 0.\nstatic int finish(void) { return 0; }\n")
    assert check(tmp_path) == (1, found)


def test_statements_pass(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.c").write_text('// True if it is a leaf.\nstatic int a_finish(void) { return puts("what?"); }\n')
    assert check(tmp_path) == (0, "")
