"""Chat templates beside transformers: those of tests/data/chat live, and those that llama.cpp collects, where its sources lie.

COTAN_LLAMA_CPP names a folder with llama.cpp's sources, or with the unpacked source package of llama-cpp-python.
"""
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("jinja2")

from support.chat import DATA, Renderer  # noqa: E402

sys.path.insert(0, str(DATA))
import conversations  # noqa: E402
import expressions  # noqa: E402
import reference  # noqa: E402

COLLECTED = sorted(Path(os.environ.get("COTAN_LLAMA_CPP", "/nonexistent")).glob("**/models/templates/*.jinja"))


@pytest.fixture(scope="module")
def renderer(tmp_path_factory):
    os.environ["TZ"] = "UTC"
    import time
    time.tzset()
    made = Renderer(tmp_path_factory.mktemp("chat"))
    yield made
    made.close()


def compare(renderer, path):
    template, rendered = path.read_text(), 0
    for name, messages, tools, variables in conversations.CONVERSATIONS:
        want = reference.render_chat(template, messages, tools, variables)
        got = renderer.ask(template=template, messages=messages, tools=tools, now=conversations.NOW,
                           variables={**conversations.TOKENS, **variables})
        assert got.get("text") == want, (path.name, name, got)
        rendered += want is not None
    return rendered


@pytest.mark.parametrize("path", sorted((DATA / "templates").glob("*.jinja")), ids=lambda path: path.stem)
def test_own_templates(renderer, path):
    assert compare(renderer, path) > 0


def test_collected_templates(renderer):
    if not COLLECTED:
        pytest.skip("COTAN_LLAMA_CPP names no folder with models/templates")
    rendered = sum(compare(renderer, path) for path in COLLECTED)
    print(f"{len(COLLECTED)} templates, {rendered} conversations rendered alike")


def test_expressions(renderer):
    for template in expressions.templates():
        want = reference.render(template, {**expressions.VARIABLES, "messages": [conversations.USER], "tools": None,
                                           "documents": None, "add_generation_prompt": False})
        got = renderer.ask(template=template, messages=[conversations.USER], variables=expressions.VARIABLES, now=0)
        assert got.get("text") == want, (template, got)
