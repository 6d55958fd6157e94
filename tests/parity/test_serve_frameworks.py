"""cotan serve through litellm and langchain, as their users call them."""
import json
import os
import sys
import time
from pathlib import Path

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # prices of models are not asked for
sys.path.insert(0, str(Path(__file__).parents[1]))
litellm = pytest.importorskip("litellm")
langchain_openai = pytest.importorskip("langchain_openai")
langchain_ollama = pytest.importorskip("langchain_ollama")
import ollama  # noqa: E402
import openai  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from support.serving import Server, make_model, make_parrot  # noqa: E402

ASK = [{"role": "user", "content": "fox"}]
TOOL = {"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": {
    "type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}}}


@tool
def find(what: str) -> str:
    """Finds."""
    return f"here: {what}"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frameworks")
    s = Server(make_model(folder / "small"), make_parrot(folder / "parrot"), "--api-key", "secret")
    s.key = "secret"
    yield s
    assert s.stop() == 0, s.errors


@pytest.fixture(scope="module")
def small(server):
    """The text that the model writes, by the API itself."""
    return server.say("/v1/chat/completions", model="small", messages=ASK, max_tokens=6, temperature=0)["choices"][0]["message"]["content"]


# ------------------------------------------------------------------------------------------ litellm

@pytest.fixture(scope="module")
def lite(server):
    def complete(call=litellm.completion, model="openai/small", **options):
        base = server.url + ("/v1" if model.startswith(("openai/", "text-completion-openai/", "hosted_vllm/")) else "")
        own = {"messages": ASK} if call is litellm.completion else {}
        return call(**own | {"model": model, "api_base": base, "api_key": "secret", "num_retries": 0, "max_retries": 0} | options)
    return complete


def lite_chat(lite, **options):
    return lite(**{"max_tokens": 6, "temperature": 0} | options)


def test_litellm_chat(lite, small):
    whole = lite_chat(lite)
    assert whole.choices[0].message.content == small and whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 6
    streamed = list(lite_chat(lite, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in streamed) == small and streamed[-1].choices[0].finish_reason == "length"


def test_litellm_vllm(lite, small):
    assert lite_chat(lite, model="hosted_vllm/small").choices[0].message.content == small


def test_litellm_choices(lite):
    several = lite_chat(lite, n=2, temperature=1, seed=5).choices
    assert [c.index for c in several] == [0, 1] and several[0].message.content != several[1].message.content
    content = lite_chat(lite, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert len(content) == 6 and all(len(t.top_logprobs) == 3 and t.logprob < 0 for t in content)
    cut = lite_chat(lite, model="openai/parrot", stop=["jumps"], max_tokens=20)
    assert cut.choices[0].message.content == "The fox `" and cut.choices[0].finish_reason == "stop"


def test_litellm_reasoning(lite):
    message = lite_chat(lite, model="openai/parrot", max_tokens=20).choices[0].message
    assert (message.reasoning_content, message.content) == ("Let me see.", "The fox `jumps`.")


def test_litellm_tools(lite):
    whole = lite_chat(lite, model="openai/parrot", tools=[TOOL], max_tokens=20)
    call = whole.choices[0].message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments), whole.choices[0].finish_reason) == ("find", {"what": "fox"}, "tool_calls")
    turns = [*ASK, whole.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "here"}]
    assert lite_chat(lite, model="openai/parrot", messages=turns, max_tokens=20).choices[0].message.content == "The fox `jumps`."
    chunks = list(lite_chat(lite, model="openai/parrot", tools=[TOOL], max_tokens=20, stream=True))
    built = litellm.stream_chunk_builder(chunks, messages=ASK).choices[0].message.tool_calls[0].function
    assert (built.name, json.loads(built.arguments)) == ("find", {"what": "fox"})


def test_litellm_completions(lite):
    whole = lite(litellm.text_completion, "text-completion-openai/small", prompt="the", max_tokens=4, temperature=0)
    assert len(whole.choices[0].text) > 0 and whole.usage.completion_tokens == 4


def test_litellm_embeddings(lite):
    made = lite(litellm.embedding, input=["the quick", "fox"])
    assert [len(row["embedding"]) for row in made.data] == [32, 32] and made.usage.prompt_tokens > 0


def test_litellm_ollama(lite, small):
    for model in "ollama_chat/small", "ollama/small":
        whole = lite_chat(lite, model=model)
        assert whole.choices[0].message.content and whole.usage.completion_tokens == 6
    assert lite_chat(lite, model="ollama_chat/small").choices[0].message.content == small
    assert "".join(c.choices[0].delta.content or "" for c in lite_chat(lite, model="ollama_chat/small", stream=True)) == small
    call = lite_chat(lite, model="ollama_chat/parrot", tools=[TOOL], max_tokens=20).choices[0].message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("find", {"what": "fox"})


def test_litellm_errors(lite):
    with pytest.raises(litellm.BadRequestError, match="temperature must be a number from 0 to 2, not 3"):
        lite_chat(lite, temperature=3)
    with pytest.raises(litellm.AuthenticationError, match="the API key is wrong"):
        lite_chat(lite, api_key="wrong")
    with pytest.raises(litellm.NotFoundError, match='there is no model "large" here, but small, parrot'):
        lite_chat(lite, model="openai/large")
    with pytest.raises(litellm.BadRequestError, match="messages: 1024 tokens do not fit into the context of small: 512"):
        lite_chat(lite, messages=[{"role": "user", "content": "fox " * 1000}])


def wait_for(holds):
    deadline = time.monotonic() + 30
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert holds()


def test_litellm_full_queue(tmp_path):
    """What one more than the queue takes is told; a client of the same connections goes on when there is room."""
    s = Server(make_model(tmp_path / "small", context=8192), "--max-sequences", 1, "--max-queued", 1)
    try:
        ask = dict(model="openai/small", messages=ASK, max_tokens=1, api_base=s.url + "/v1", api_key="none", num_retries=0, max_retries=0)
        busy = [s.connect(), s.connect()]
        for c, count in zip(busy, ("running", "queued")):
            c.request("POST", "/v1/completions", json.dumps({"prompt": "fox", "max_tokens": 8000, "logit_bias": {"0": -100, "2": -100}}))
            wait_for(lambda: s.metric(f"cotan_sequences_{count}") == 1)
        for _ in range(2):
            with pytest.raises(litellm.RateLimitError, match="the queue is full with 1 requests: try again later"):
                litellm.completion(**ask)
        for c in busy:
            c.close()
        wait_for(lambda: s.metric("cotan_sequences_running") + s.metric("cotan_sequences_queued") == 0)
        assert litellm.completion(**ask).choices
    finally:
        assert s.stop() == 0, s.errors


# ------------------------------------------------------------------------------------------ langchain

@pytest.fixture(scope="module")
def chain(server):
    def make(model="small", **options):
        return langchain_openai.ChatOpenAI(**{"model": model, "base_url": server.url + "/v1", "api_key": "secret", "max_retries": 0, "temperature": 0,
                                              "max_tokens": 20 if model == "parrot" else 6} | options)
    return make


def test_langchain_chat(chain, small):
    whole = chain().invoke("fox")
    assert whole.content == small and whole.usage_metadata["output_tokens"] == 6 and whole.response_metadata["finish_reason"] == "length"
    assert "".join(c.content for c in chain().stream("fox")) == small
    assert [m.content for m in chain().batch(["fox", "fox"])] == [small, small]
    assert chain().invoke([SystemMessage("dog"), HumanMessage("fox")]).usage_metadata["input_tokens"] > whole.usage_metadata["input_tokens"]


def test_langchain_options(chain):
    assert chain("parrot").bind(stop=["jumps"]).invoke("fox").content == "The fox `"
    likely = chain(logprobs=True, top_logprobs=2).invoke("fox").response_metadata["logprobs"]["content"]
    assert len(likely) == 6 and len(likely[0]["top_logprobs"]) == 2
    several = chain(n=2, temperature=1, seed=5).generate([[HumanMessage("fox")]]).generations[0]
    assert len({g.text for g in several}) == 2


def test_langchain_tools(chain):
    model = chain("parrot").bind_tools([find])
    said = model.invoke("fox")
    call = said.tool_calls[0]
    assert (call["name"], call["args"]) == ("find", {"what": "fox"})
    answer = chain("parrot").invoke([HumanMessage("fox"), said, find.invoke(call)])
    assert isinstance(find.invoke(call), ToolMessage) and answer.content == "The fox `jumps`."
    whole = None
    for chunk in model.stream("fox"):
        whole = chunk if whole is None else whole + chunk
    assert [(c["name"], c["args"]) for c in whole.tool_calls] == [("find", {"what": "fox"})]


def test_langchain_responses(chain):
    assert chain("parrot", use_responses_api=True).invoke("fox").text == "The fox `jumps`."


def test_langchain_completions(server):
    model = langchain_openai.OpenAI(model="small", base_url=server.url + "/v1", api_key="secret", max_retries=0, temperature=0, max_tokens=4)
    assert model.invoke("the") == "".join(model.stream("the")) != ""


def test_langchain_embeddings(server):
    """The default counts tokens by OpenAI's tables and sends them as numbers, which are another model's."""
    embeds = langchain_openai.OpenAIEmbeddings(model="small", base_url=server.url + "/v1", api_key="secret", check_embedding_ctx_length=False)
    rows = embeds.embed_documents(["the quick", "fox"])
    assert [len(row) for row in rows] == [32, 32] and rows[1] == pytest.approx(embeds.embed_query("fox"), abs=1e-6)


def test_langchain_errors(chain):
    with pytest.raises(openai.BadRequestError, match="temperature must be a number from 0 to 2, not 3"):
        chain(temperature=3).invoke("fox")
    with pytest.raises(openai.NotFoundError, match='there is no model "large" here, but small, parrot'):
        chain("large").invoke("fox")
    with pytest.raises(openai.AuthenticationError, match="the API key is wrong"):
        chain(api_key="wrong").invoke("fox")


@pytest.fixture(scope="module")
def lama_chain(server):
    def make(model="small", **options):
        return langchain_ollama.ChatOllama(**{"model": model, "base_url": server.url, "client_kwargs": {"headers": {"Authorization": "Bearer secret"}},
                                              "temperature": 0, "num_predict": 20 if model == "parrot" else 6} | options)
    return make


def test_langchain_ollama_chat(lama_chain, small):
    whole = lama_chain().invoke("fox")
    assert whole.content == small and whole.usage_metadata["output_tokens"] == 6 and whole.response_metadata["done_reason"] == "length"
    assert "".join(c.content for c in lama_chain().stream("fox")) == small
    assert lama_chain("parrot", stop=["jumps"], reasoning=True).invoke("fox").content == "The fox `"
    thought = lama_chain("parrot", reasoning=True).invoke("fox")
    assert (thought.additional_kwargs["reasoning_content"], thought.content) == ("Let me see.", "The fox `jumps`.")


def test_langchain_ollama_tools(lama_chain):
    said = lama_chain("parrot").bind_tools([find]).invoke("fox")
    assert isinstance(said, AIMessage) and [(c["name"], c["args"]) for c in said.tool_calls] == [("find", {"what": "fox"})]
    answer = lama_chain("parrot", reasoning=True).invoke([HumanMessage("fox"), said, find.invoke(said.tool_calls[0])])
    assert answer.content == "The fox `jumps`."


def test_langchain_ollama_texts_and_vectors(server):
    more = {"base_url": server.url, "client_kwargs": {"headers": {"Authorization": "Bearer secret"}}}
    assert langchain_ollama.OllamaLLM(model="small", temperature=0, num_predict=4, **more).invoke("the")
    rows = langchain_ollama.OllamaEmbeddings(model="small", **more).embed_documents(["the quick", "fox"])
    assert [len(row) for row in rows] == [32, 32]


def test_langchain_ollama_errors(lama_chain):
    with pytest.raises(ollama.ResponseError, match='there is no model "large" here, but small, parrot'):
        lama_chain("large").invoke("fox")
