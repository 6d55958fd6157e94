"""Calls of tools: what a request says of them, to a model that always writes the same, and to one that calls none."""
import json

import pytest
from support.serving import Server, make_model, make_parrot

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}}}
         for name in ("find", "other")]
NAMED = {"type": "function", "function": {"name": "find"}}
ASK = {"messages": [{"role": "user", "content": "Find the fox."}], "tools": TOOLS, "max_tokens": 40}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(make_parrot(tmp_path_factory.mktemp("parrot") / "parrot"), make_model(tmp_path_factory.mktemp("writer") / "writer"))
    yield server
    assert server.stop() == 0, server.errors


@pytest.mark.parametrize("wish", [{}, {"tool_choice": "auto"}, {"parallel_tool_calls": False}], ids=str)
def test_a_call(server, wish):
    choice = server.say("/v1/chat/completions", **ASK, **wish)["choices"][0]
    call, = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"].strip() == "I look."
    assert call["type"] == "function" and call["function"]["name"] == "find" and json.loads(call["function"]["arguments"]) == {"what": "fox"}


def test_no_tools(server):
    choice = server.say("/v1/chat/completions", **ASK, tool_choice="none")["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["message"]["content"] == "The fox `jumps`." and "tool_calls" not in choice["message"]
    assert choice["message"]["reasoning_content"] == "Let me see."


def test_tokens_of_reasoning(server):
    """<think>, "Let me " and "see.", of six with the end of it and the answer's; none where nothing is thought."""
    ask = {"messages": ASK["messages"], "max_tokens": 40}
    usage = server.say("/v1/chat/completions", **ask)["usage"]
    assert (usage["completion_tokens"], usage["completion_tokens_details"]) == (6, {"reasoning_tokens": 3})
    assert server.events("/v1/chat/completions", **ask, stream_options={"include_usage": True})[-2]["usage"]["completion_tokens_details"] == {
        "reasoning_tokens": 3}
    assert server.say("/v1/chat/completions", **ask, n=2)["usage"]["completion_tokens_details"] == {"reasoning_tokens": 6}
    usage = server.say("/v1/responses", input="Find the fox.")["usage"]
    assert usage["output_tokens_details"] == {"reasoning_tokens": 3} and usage["output_tokens"] == 6
    for more in (dict(tools=TOOLS), dict(chat_template_kwargs={"enable_thinking": False})):
        assert server.say("/v1/chat/completions", **ask, **more)["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert "completion_tokens_details" not in server.say("/v1/completions", prompt="<plain>", max_tokens=4)["usage"]


def test_what_is_hidden(server):
    """Without a choice the model reads of the tools."""
    read = {wish: server.say("/v1/chat/completions", model="writer", **ASK, tool_choice=wish)["usage"]["prompt_tokens"] for wish in ("none", "auto")}
    assert read["none"] < read["auto"]


@pytest.mark.parametrize("wish, name", [("required", "required"), (NAMED, "find")], ids=str)
def test_nothing_forces_a_call(server, wish, name):
    """So that what has to be forced is refused; with auto an answer without a call is an answer."""
    why = "a call cannot be forced; auto leaves it to the model"
    assert server.refused("/v1/chat/completions", ASK | {"tool_choice": wish}) == (400, f"tool_choice: {name}: {why}")
    responses = {"type": "function", "name": "find"} if wish is NAMED else wish
    tools = [{"type": "function"} | t["function"] for t in TOOLS]
    assert server.refused("/v1/responses", {"input": "fox", "tools": tools, "tool_choice": responses}) == (400, f"tool_choice: {name}: {why}")
    choice = server.say("/v1/chat/completions", model="writer", **ASK, tool_choice="auto", seed=1)["choices"][0]
    assert choice["finish_reason"] in ("stop", "length") and choice["message"]["content"] and "tool_calls" not in choice["message"]
    status, message = server.refused("/v1/chat/completions", ASK | {"tool_choice": {"type": "function", "function": {"name": "seek"}}})
    assert (status, message) == (400, "tool_choice names seek, which is none of the tools")
