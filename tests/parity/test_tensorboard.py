"""TensorBoard's own reader of event files, over those of a short training run that is started twice."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["COTAN_BUILD"])


def test_a_run_in_tensorboard(tmp_path):
    done = subprocess.run([BUILD / "cotan", "train", "--data", ROOT / "README.md", "--layers", "1", "--heads", "2", "--width", "16",
                           "--context", "16", "--batch", "4", "--steps", "12", "--eval-every", "5", "--out", tmp_path],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    shown = EventAccumulator(str(tmp_path), {"scalars": 0, "tensors": 0})
    shown.Reload()
    for tag in ("loss", "lr", "grad_norm", "tokens_per_s", "val_loss"):
        want = [(line["step"], np.float32(line[tag])) for line in lines if tag in line]
        if tag in shown.Tags()["scalars"]:
            got = [(e.step, np.float32(e.value)) for e in shown.Scalars(tag)]
        else:
            got = [(e.step, np.float32(e.tensor_proto.float_val[0])) for e in shown.Tensors(tag)]
        assert got == want, tag


def test_a_resumed_run_in_tensorboard(tmp_path):
    """Two files, the second from step 5 on: nothing of the first from there on is left."""
    program = BUILD / "tests/unit/test_io_events"
    for step in ("0", "5"):
        assert subprocess.run([program, tmp_path, step], timeout=60).returncode == 0
    for path in tmp_path.iterdir():
        assert all(e.wall_time > 0 for e in EventFileLoader(str(path)).Load())
    shown = EventAccumulator(str(tmp_path), {"scalars": 0, "tensors": 0})
    shown.Reload()
    events = shown.Scalars("loss") if "loss" in shown.Tags()["scalars"] else shown.Tensors("loss")
    assert [e.step for e in events] == [0, 1] + [0, 1, 127, 128, 16384, 2**63 - 1]
