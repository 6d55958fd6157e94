"""The page of ops, from the same records as everything else: each public op stands there with its sentence."""
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_op_is_described():
    subprocess.run([str(ROOT / "scripts/make-docs")], check=True, capture_output=True)
    rows = [line.split(" | ") for line in (ROOT / "build/docs/ops.md").read_text().splitlines()
            if line.startswith("| `ct_")]
    listed = [line for line in (ROOT / "src/ops/ops.list").read_text().splitlines()
              if line.startswith("OP(") and not line.endswith(", -)")]
    assert len(rows) == len(listed) > 80
    for call, text in rows:
        assert text.endswith(". |") and len(text) > 4, call
