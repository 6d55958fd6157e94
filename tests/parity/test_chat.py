"""Chat templates beside transformers: those of tests/data/chat live, and those that llama.cpp collects, where its sources lie.

COTAN_LLAMA_CPP names a folder with llama.cpp's sources, or with the unpacked source package of llama-cpp-python.
"""
import json
import os
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", minversion="5", reason="Hugging Face's transformers 5 is not there")
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


# The collected templates whose form of calls is known; the others are "text".
FORMS = {
    "Apertus-8B-Instruct": "apertus", "Apriel-1.6-15b-Thinker-fixed": "tool-calls", "Bielik-11B-v3.0-Instruct": "hermes",
    "ByteDance-Seed-OSS": "seed", "Cohere2MoE": "command-r7b", "CohereForAI-c4ai-command-r-plus-tool_use": "command-r",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "command-r7b", "GLM-4.6": "glm", "GLM-4.7-Flash": "glm",
    "GigaChat3.1-10B-A1.8B": "gigachat", "Kimi-K2-Instruct": "kimi", "Kimi-K2-Thinking": "kimi", "Kimi-K3": "kimi-k3", "LFM2-8B-A1B": "lfm2",
    "LFM2.5-8B-A1B": "lfm2", "LFM2.5-Instruct": "lfm2", "MiMo-VL": "hermes", "MiniMax-M1": "tool-calls", "MiniMax-M2": "minimax-m2",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen3-coder",
    "NVIDIA-Nemotron-Nano-v2": "nemotron", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes", "Qwen-QwQ-32B": "hermes", "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes", "Qwen3-Coder": "qwen3-coder", "Qwen3.5-4B": "qwen3-coder", "Reka-Edge": "hermes",
    "Spark2.5": "glm", "StepFun3.5-Flash": "qwen3-coder", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "deepseek-v3",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek-v3", "deepseek-ai-DeepSeek-V3.1": "deepseek-v3.1",
    "deepseek-ai-DeepSeek-V3.2": "deepseek-v3.2", "deepseek-ai-DeepSeek-V4": "deepseek-v4",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "deepseek-v4", "fireworks-ai-llama-3-firefunction-v2": "functools",
    "ibm-granite-granite-3.3-2B-Instruct": "granite", "ibm-granite-granite-4.0": "hermes", "ibm-granite-granite-4.1": "hermes",
    "inclusionai-ling-3.0-flash": "glm", "llama-cpp-deepseek-r1": "deepseek-v3", "meetkai-functionary-medium-v3.1": "functionary-v3.1",
    "meetkai-functionary-medium-v3.2": "functionary-v3.2", "meta-llama-Llama-3.1-8B-Instruct": "llama-3",
    "meta-llama-Llama-3.2-3B-Instruct": "llama-3", "meta-llama-Llama-3.3-70B-Instruct": "llama-3",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral", "mistralai-Mistral-Nemo-Instruct-2407": "mistral", "moonshotai-Kimi-K2": "kimi",
    "openai-gpt-oss-120b": "harmony", "openbmb-MiniCPM5-1B": "minicpm", "poolside-Laguna-S-2.1": "glm", "poolside-Laguna-XS-2.1": "glm",
    "poolside-Laguna-XS.2": "glm", "unsloth-Apriel-1.5": "tool-calls", "unsloth-mistral-Devstral-Small-2507": "mistral",
    "upstage-Solar-Open-100B": "solar", "google-gemma-4-31B-it": "gemma-4", "google-gemma-4-31B-it-interleaved": "gemma-4",
    "tencent-Hy3": "hunyuan-3",
}
# Those that render a message with calls, but not as the model writes it, or refuse it for our tools.
RENDER_NONE = {"LFM2-8B-A1B", "LFM2.5-Instruct", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "ibm-granite-granite-3.3-2B-Instruct",
               "fireworks-ai-llama-3-firefunction-v2", "llama-cpp-deepseek-r1", "Kimi-K2-Instruct", "Kimi-K2-Thinking"}
PLACE, DAYS, SAFE = [{"type": kind, "description": "What."} for kind in ("string", "integer", "boolean")]
WORDS = {"type": "array", "items": {"type": "string"}, "description": "Which."}
TOOLS = [{"type": "function", "function": {"name": name, "description": "Does it.", "parameters": {
    "type": "object", "properties": properties, "required": []}}}
    for name, properties in (("get_weather", {"place": PLACE, "days": DAYS}), ("search", {"words": WORDS, "safe": SAFE}))]
ARGUMENTS = [{"place": "Oslo \"x\"", "days": 2}, {"words": ["a", "b"], "safe": True}]
NAMES = ["get_weather", "search"]


def called(renderer, template, calls, content, as_text):
    """The calls that come back from what the template writes of them, behind the prompt that it writes."""
    made = [conversations.call(f"abc123de{i}", NAMES[i], json.dumps(ARGUMENTS[i]) if as_text else ARGUMENTS[i]) for i in range(calls)]
    message = {"role": "assistant", "content": content, "tool_calls": made}
    user = {"role": "user", "content": "Weather?"}
    ask = lambda messages, generate: renderer.ask(  # noqa: E731
        template=template, messages=messages, tools=TOOLS, now=conversations.NOW,
        variables={**conversations.TOKENS, "add_generation_prompt": generate}).get("text")
    prompt, whole = ask([user], True), ask([user, message], False)
    if prompt is None or whole is None:
        return None
    prompt = os.path.commonprefix([prompt, whole])
    if re.search(r"<[^>\s]{0,20}$", prompt):  # not within a mark
        prompt = prompt[:prompt.rindex("<")]
    parts = renderer.ask(template=template, tools=TOOLS, answer=whole[len(prompt):], prompt=prompt)["parts"]
    names = [part["text"] for part in parts if part["kind"] == 2]
    try:
        return names == NAMES[:calls] and [json.loads(part["text"]) for part in parts if part["kind"] == 3] == ARGUMENTS[:calls]
    except json.JSONDecodeError:  # the template writes a string of JSON as if it were an object
        return False


@pytest.mark.parametrize("path", COLLECTED, ids=lambda path: path.stem)
def test_forms(renderer, path):
    """The form is the family's, and calls come back from what the template writes."""
    template, form = path.read_text(), FORMS.get(path.stem, "text")
    assert renderer.ask(template=template, answer="")["form"] == form
    ways = [called(renderer, template, calls, content, as_text)
            for calls in (2, 1) for content in ("", "Let me look.") for as_text in (False, True)]
    assert any(ways) == (form != "text" and path.stem not in RENDER_NONE), ways
