"""Graphviz reads what COTAN_DUMP=dot says, and finds the names in it as they are."""
import json
import os
import shutil
import subprocess

import pytest
from support.program import command

PROGRAM = command("tests/unit/test_dot")


@pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz is not installed")
def test_graphviz_reads_it():
    said = subprocess.run([*PROGRAM, "--print"], capture_output=True, text=True, timeout=60,
                          env=os.environ | {"COTAN_DUMP": "dot", "COTAN_DEVICE": "ref"})
    assert said.returncode == 0
    graphs = ["digraph " + g for g in said.stderr.split("digraph ")[1:]]
    assert len(graphs) == 3
    for graph, name in zip(graphs, ("recorded", "expanded", "simplified")):
        done = subprocess.run(["dot", "-Tjson"], input=graph, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, done.stderr
        read = json.loads(done.stdout)
        assert read["name"] == name
        labels = [node["label"] for node in read["objects"]]
        pending = name == "recorded"  # w, read before its assignment has run
        assert len(labels) == 8 + pending and len(read["edges"]) == 7 + pending
        if pending:
            assert r'assign w"\\1' in labels and 'metric loss "1"' in labels
        svg = subprocess.run(["dot", "-Tsvg"], input=graph, capture_output=True, text=True, timeout=60)
        assert "a &quot;b&quot;\\c?{&lt;d&gt;}.c:7" in svg.stdout.replace("&#45;", "-")
