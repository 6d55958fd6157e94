"""docs/python-transforms.md: its blocks run, and print what the page shows. COTAN_DOCS=write puts what they print into it."""
import contextlib
import io
import os
import re
from pathlib import Path

PATH = Path(__file__).resolve().parents[2] / "docs/python-transforms.md"
BLOCK = re.compile(r"```python\n(.*?)```\n```text\n(.*?)```\n", re.S)


def test_the_page():
    page, names = PATH.read_text(), {}
    assert page.count("```python") == len(BLOCK.findall(page)) >= 8

    def run(found):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(found[1], str(PATH), "exec"), names)
        return f"```python\n{found[1]}```\n```text\n{said.getvalue()}```\n"

    now = BLOCK.sub(run, page)
    if os.environ.get("COTAN_DOCS") == "write":
        PATH.write_text(now)
    assert now == PATH.read_text()
