"""TensorBoard's own reader of event files: those of a short training run that is started twice, and SummaryWriter's."""
import json
import os
import subprocess
from pathlib import Path

import cotan
import numpy as np
from cotan.utils.tensorboard import SummaryWriter
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

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


def test_a_summary_writer(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", 1 / (step + 1), step)
        writer.add_histogram("weights", cotan.asarray([-1.0, 0.0, 0.5, 0.5, 2.0]), 1)
        writer.add_image("image", cotan.rand(3, 4, 5), 2)
        writer.add_text("note", "hello")
        writer.add_hparams({"lr": 0.5, "name": "adam", "flag": True}, {"score": 2.0}, run_name="settings")
    shown = EventAccumulator(str(tmp_path), {"scalars": 0, "tensors": 0, "histograms": 0, "images": 0})
    shown.Reload()
    assert [(e.step, np.float32(e.value)) for e in shown.Scalars("loss")] == [(i, np.float32(1 / (i + 1))) for i in range(3)]
    histogram = shown.Histograms("weights")[0].histogram_value
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (-1, 2, 5, 2) and sum(histogram.bucket) == 5
    image = shown.Images("image")[0]
    assert (image.height, image.width, image.encoded_image_string[:4]) == (4, 5, b"\x89PNG")
    assert shown.Tensors("note/text_summary")[0].tensor_proto.string_val == [b"hello"]
    settings = EventAccumulator(str(tmp_path / "settings"))
    settings.Reload()
    content = {tag: HParamsPluginData.FromString(one.plugin_data.content) for tag, one in settings.summary_metadata.items()
               if one.plugin_data.plugin_name == "hparams"}
    started = content["_hparams_/session_start_info"].session_start_info.hparams
    assert (started["lr"].number_value, started["name"].string_value, started["flag"].bool_value) == (0.5, "adam", True)
    assert [one.name.tag for one in content["_hparams_/experiment"].experiment.metric_infos] == ["score"]
