"""README's Python programs run, and learn."""
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_readme_runs(capsys):
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert programs
    for program in programs:
        exec(compile(program, "README.md", "exec"), {})
    losses = [float(line.split()[1]) for line in capsys.readouterr().out.splitlines()]
    assert len(losses) == 3 and losses[2] < losses[0] / 50
