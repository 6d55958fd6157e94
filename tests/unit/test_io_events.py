"""Event files, decoded strictly."""
import math
import struct
import subprocess

import pytest
from support import tfevents
from support.program import command

PROGRAM = command("tests/unit/test_io_events")


@pytest.mark.parametrize("step", [0, 5, 1 << 40])
def test_events(tmp_path, step):
    assert subprocess.run([*PROGRAM, tmp_path, str(step)], timeout=60).returncode == 0
    assert subprocess.run([*PROGRAM, tmp_path, str(step)], timeout=60).returncode == 0
    first, second = sorted(tmp_path.iterdir())  # a file a start, even within one second
    for path in (first, second):
        version, *events = tfevents.read(path)
        assert version.file_version == "brain.Event:2" and version.step == 0 and not version.scalars
        if step:  # a resumed run says where it starts
            start = events.pop(0)
            assert start.starts and start.step == step and not start.scalars
        assert [e.step for e in events] == [0, 1, 127, 128, 16384, 2**63 - 1, 7]
        assert not any(e.starts for e in events)
        for e in events[:-1]:
            assert list(e.scalars) == ["loss", "lr", "none", "far"]
            assert e.scalars["loss"] == 1.5 and e.scalars["far"] == -math.inf and math.isnan(e.scalars["none"])
            assert e.scalars["lr"] == struct.unpack("f", struct.pack("f", -1e-3))[0]
        assert events[-1].scalars == {}
