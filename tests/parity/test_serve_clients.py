"""cotan serve through the clients that people use: openai and ollama, as they come."""
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
openai = pytest.importorskip("openai")
ollama = pytest.importorskip("ollama")
from support.serving import Server, make_model, make_parrot  # noqa: E402

ASK = [{"role": "user", "content": "fox"}]
TOOL = {"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": {
    "type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clients")
    s = Server(make_model(folder / "small"), make_parrot(folder / "parrot"), make_model(folder / "reads", name="bert", template=None),
               "--api-key", "secret")
    s.key = "secret"
    yield s
    assert s.stop() == 0, s.errors


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="secret", max_retries=0) as c:
        yield c


@pytest.fixture(scope="module")
def lama(server):
    return ollama.Client(host=server.url, headers={"Authorization": "Bearer secret"})


def chat(client, **options):
    return client.chat.completions.create(**{"model": "small", "messages": ASK, "max_tokens": 6, "temperature": 0} | options)


def parrot(client, **options):
    return chat(client, **{"model": "parrot", "max_tokens": 20} | options)


# ------------------------------------------------------------------------------------------ openai

def test_models(client):
    assert [m.id for m in client.models.list()] == ["small", "parrot", "reads"]
    assert client.models.retrieve("small").owned_by == "cotan"
    with pytest.raises(openai.NotFoundError, match='there is no model "large" here'):
        client.models.retrieve("large")


def test_chat(client):
    whole = chat(client)
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 6
    assert whole.usage.prompt_tokens_details.cached_tokens >= 0 and whole.choices[0].message.content


def test_chat_streams(client):
    text = "".join(c.choices[0].delta.content or "" for c in chat(client, stream=True))
    assert text == chat(client).choices[0].message.content


def test_chat_streams_usage(client):
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.completion_tokens == 6 and not chunks[-1].choices and chunks[0].usage is None


def test_chat_stream_helper(client):
    with client.chat.completions.stream(model="parrot", messages=ASK, temperature=0) as stream:
        deltas = [e.delta for e in stream if e.type == "content.delta"]
        assert "".join(deltas) == stream.get_final_completion().choices[0].message.content


def test_chat_of_several_turns(client):
    turns = [{"role": "system", "content": "dog"}, *ASK, {"role": "assistant", "content": "quick"}, {"role": "user", "content": "lazy"}]
    assert chat(client, messages=turns).usage.prompt_tokens > chat(client).usage.prompt_tokens


def test_parts_and_developers(client):
    parts = [{"role": "developer", "content": "dog"}, {"role": "user", "content": [{"type": "text", "text": "fox"}]}]
    plain = [{"role": "system", "content": "dog"}, *ASK]
    assert chat(client, messages=parts).choices[0].message.content == chat(client, messages=plain).choices[0].message.content


def test_several_choices(client):
    several = chat(client, n=3, temperature=1, seed=5).choices
    assert [c.index for c in several] == [0, 1, 2] and len({c.message.content for c in several}) > 1
    streamed = ["", "", ""]
    for chunk in chat(client, n=3, temperature=1, seed=5, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == [c.message.content for c in several]


def test_seeds(client):
    drawn = [chat(client, temperature=1, seed=seed).choices[0].message.content for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_seeds_of_64_bits(client):
    drawn = [chat(client, seed=2**63 - 1 - i, max_tokens=12, temperature=1).choices[0].message.content for i in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_what_an_assistant_did_not_say(client):
    turns = [*ASK, {"role": "assistant", "content": None, "refusal": "No."}, *ASK,
             {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, *ASK]
    said = [*ASK, {"role": "assistant", "content": "No."}, *ASK, {"role": "assistant", "content": "No."}, *ASK]
    assert chat(client, messages=turns).choices[0].message.content == chat(client, messages=said).choices[0].message.content


def test_a_prompt_alone(client):
    done = client.completions.create(model="small", prompt="the fox", max_tokens=0, echo=True, logprobs=1)
    assert done.choices[0].text == "the fox" == "".join(done.choices[0].logprobs.tokens) and done.usage.completion_tokens == 0


def test_stops(client):
    text = parrot(client).choices[0].message.content
    cut = parrot(client, stop="jumps")
    assert text == "The fox `jumps`." and cut.choices[0].message.content == "The fox `" and cut.choices[0].finish_reason == "stop"


def test_log_probabilities(client):
    content = chat(client, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert len(content) == 6 and all(t.top_logprobs[0].token == t.token and t.logprob < 0 for t in content)


def test_bias_and_penalties(client):
    banned = chat(client, max_tokens=1, logprobs=True)
    token = banned.choices[0].logprobs.content[0]
    again = chat(client, max_tokens=4, presence_penalty=2, frequency_penalty=2)
    assert len(again.choices) == 1
    forced = [chat(client, max_tokens=1, logit_bias={str(t): 100}, logprobs=True).choices[0].logprobs.content[0].token for t in (40, 41)]
    assert forced[0] != forced[1] and token.token not in forced


def test_extensions(client):
    one = chat(client, temperature=1, extra_body={"top_k": 1, "min_p": 0.1, "repetition_penalty": 1.0})
    assert one.choices[0].message.content == chat(client).choices[0].message.content


def test_tokens_of_reasoning(client):
    assert parrot(client).usage.completion_tokens_details.reasoning_tokens == 3
    assert client.responses.create(model="parrot", input="fox").usage.output_tokens_details.reasoning_tokens == 3


def test_reasoning(client):
    whole = parrot(client)
    assert whole.choices[0].message.reasoning_content == "Let me see." and whole.choices[0].message.content == "The fox `jumps`."
    thought = "".join(getattr(c.choices[0].delta, "reasoning_content", "") or "" for c in parrot(client, stream=True))
    assert thought == "Let me see."


def test_template_variables(client):
    plain = parrot(client, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert plain.choices[0].message.content == "Straight on."


def test_tools(client):
    whole = parrot(client, tools=[TOOL])
    call = whole.choices[0].message.tool_calls[0]
    assert whole.choices[0].finish_reason == "tool_calls" and call.function.name == "find"
    assert json.loads(call.function.arguments) == {"what": "fox"} and whole.choices[0].message.content == "I look."
    turns = [*ASK, whole.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "here"}]
    assert parrot(client, messages=turns).choices[0].message.content == "The fox `jumps`."


def test_tools_stream(client):
    name, arguments, ends = "", "", []
    for chunk in parrot(client, tools=[TOOL], stream=True):
        for call in chunk.choices[0].delta.tool_calls or []:
            name += call.function.name or ""
            arguments += call.function.arguments or ""
        ends.append(chunk.choices[0].finish_reason)
    assert (name, json.loads(arguments), ends[-1]) == ("find", {"what": "fox"}, "tool_calls")


def test_tool_choices(client):
    assert parrot(client, tools=[TOOL], tool_choice="none").choices[0].message.tool_calls is None
    assert parrot(client, tools=[TOOL], tool_choice="auto").choices[0].message.tool_calls
    named = {"type": "function", "function": {"name": "find"}}
    for choice, name in ("required", "required"), (named, "find"):
        with pytest.raises(openai.BadRequestError, match=f"tool_choice: {name}: a call cannot be forced; auto leaves it to the model"):
            parrot(client, tools=[TOOL], tool_choice=choice)


def test_completions(client):
    whole = client.completions.create(model="small", prompt="the", max_tokens=4, temperature=0, echo=True)
    assert whole.choices[0].text.startswith("the") and whole.object == "text_completion"
    several = client.completions.create(model="small", prompt=["the", "fox"], max_tokens=4, temperature=0)
    assert "the" + several.choices[0].text == whole.choices[0].text and several.choices[1].index == 1


def test_completions_stream(client):
    ask = dict(model="small", prompt=[40, 41, 42], max_tokens=5, temperature=0)
    text = "".join(c.choices[0].text for c in client.completions.create(**ask, stream=True))
    assert text == client.completions.create(**ask).choices[0].text


def test_completions_log_probabilities(client):
    one = client.completions.create(model="small", prompt="the", max_tokens=4, temperature=0, logprobs=2).choices[0].logprobs
    assert len(one.tokens) == len(one.token_logprobs) == len(one.top_logprobs) == len(one.text_offset) == 4


def test_embeddings(client):
    for model, width in (("small", 32), ("reads", 32)):
        made = client.embeddings.create(model=model, input=["the quick", "fox"])  # base64, which the client unpacks
        plain = client.embeddings.create(model=model, input="fox", encoding_format="float")
        assert len(made.data[1].embedding) == width and made.data[1].embedding == pytest.approx(plain.data[0].embedding, abs=1e-6)
        assert made.usage.prompt_tokens > 0


def test_responses(client):
    whole = client.responses.create(model="parrot", input="fox", temperature=0)
    assert whole.output_text == "The fox `jumps`." and whole.status == "completed" and whole.usage.output_tokens == 6
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    short = client.responses.create(model="small", input="fox", max_output_tokens=3, temperature=0, instructions="dog")
    assert short.status == "incomplete" and short.incomplete_details.reason == "max_output_tokens"


def test_responses_that_are_not_stored(client):
    for more in (dict(background=True), dict(conversation="conv_1"), dict(prompt={"id": "pmpt_1"}), dict(previous_response_id="resp_1")):
        with pytest.raises(openai.BadRequestError, match="not stored") as told:
            client.responses.create(model="small", input="fox", **more)
        assert told.value.param == list(more)[0]


def test_responses_stream(client):
    with client.responses.stream(model="parrot", input="fox", temperature=0) as stream:
        deltas = [e.delta for e in stream if e.type == "response.output_text.delta"]
        assert "".join(deltas) == stream.get_final_response().output_text == "The fox `jumps`."


def test_responses_tools(client):
    tool = {"type": "function", **TOOL["function"]}
    whole = client.responses.create(model="parrot", input="fox", temperature=0, tools=[tool])
    call = whole.output[-1]
    assert call.type == "function_call" and json.loads(call.arguments) == {"what": "fox"}
    said = [{"role": "user", "content": "fox"}, *whole.output, {"type": "function_call_output", "call_id": call.call_id, "output": "here"}]
    assert client.responses.create(model="parrot", input=said, temperature=0).output_text == "The fox `jumps`."


def test_errors(client, server):
    with pytest.raises(openai.BadRequestError, match="temperature must be a number from 0 to 2, not 3") as e:
        chat(client, temperature=3)
    assert e.value.param == "temperature" and e.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as e:
        chat(client, model="large")
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError, match="the API key is wrong"):
        openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0).models.list()
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, messages=[{"role": "user", "content": "fox " * 1000}])
    assert e.value.code == "context_length_exceeded"


def test_a_stream_that_is_closed(client, server):
    with chat(client, stream=True, max_tokens=400, extra_body={"logit_bias": {"0": -100, "2": -100}}) as stream:
        next(iter(stream))
    assert chat(client).choices


async def ask_together(server):
    import asyncio
    async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="secret", max_retries=0) as c:
        return await asyncio.gather(*(chat(c, temperature=1, seed=i) for i in range(8)))


def test_asynchronous(client, server):
    import asyncio
    together = asyncio.run(ask_together(server))
    alone = [chat(client, temperature=1, seed=i) for i in range(8)]
    assert [c.choices[0].message.content for c in together] == [c.choices[0].message.content for c in alone]


# ------------------------------------------------------------------------------------------ ollama

PLAIN = {"temperature": 0, "num_predict": 6}


def test_ollama_list(lama):
    assert [m.model for m in lama.list().models] == ["small:latest", "parrot:latest", "reads:latest"]
    assert lama.list().models[0].details.family == "llama" and lama.list().models[0].size > 1000


def test_ollama_show(lama):
    shown = lama.show("small")
    assert shown.modelinfo["llama.embedding_length"] == 32 and "completion" in shown.capabilities


def test_ollama_can(lama):
    assert [lama.show(name).capabilities for name in ("small", "parrot", "reads")] == [["completion", "tools"]] * 2 + [["embedding"]]


def test_ollama_images(lama):
    for ask in (lambda: lama.chat("small", [{**ASK[0], "images": [b"hello"]}]), lambda: lama.generate("small", "fox", images=[b"hello"])):
        with pytest.raises(ollama.ResponseError, match="images: the model accepts text only"):
            ask()


def test_ollama_ps(lama):
    assert lama.ps().models[0].name == "small:latest"


def test_ollama_chat(lama, client):
    whole = lama.chat("small", ASK, options=PLAIN)
    assert whole.message.content == chat(client).choices[0].message.content and whole.done_reason == "length" and whole.eval_count == 6


def test_ollama_chat_streams(lama):
    parts = list(lama.chat("small:latest", ASK, options=PLAIN, stream=True))
    assert "".join(p.message.content for p in parts) == lama.chat("small", ASK, options=PLAIN).message.content
    assert parts[-1].done and not parts[0].done and parts[-1].total_duration > 0


def test_ollama_thinks(lama):
    whole = lama.chat("parrot", ASK, options={"temperature": 0})
    assert whole.message.thinking == "Let me see." and whole.message.content == "The fox `jumps`."
    assert lama.chat("parrot", ASK, think=False, options={"temperature": 0}).message.content == "Straight on."


def test_ollama_tools(lama):
    whole = lama.chat("parrot", ASK, tools=[TOOL], options={"temperature": 0})
    call = whole.message.tool_calls[0].function
    assert (call.name, call.arguments) == ("find", {"what": "fox"})
    turns = [*ASK, whole.message, {"role": "tool", "tool_name": "find", "content": "here"}]
    assert lama.chat("parrot", turns, options={"temperature": 0}).message.content == "The fox `jumps`."
    assert [p.message.tool_calls for p in lama.chat("parrot", ASK, tools=[TOOL], stream=True, options={"temperature": 0}) if p.message.tool_calls]


def test_ollama_generate(lama):
    raw = lama.generate("small", "the", raw=True, options=PLAIN)
    assert raw.response and raw.prompt_eval_count == 1
    by_template = lama.generate("small", "fox", system="dog", options=PLAIN)
    assert by_template.response == lama.chat("small", [{"role": "system", "content": "dog"}, *ASK], options=PLAIN).message.content


def test_ollama_generate_streams(lama):
    parts = list(lama.generate("small", "the", raw=True, options=PLAIN, stream=True))
    assert "".join(p.response for p in parts) == lama.generate("small", "the", raw=True, options=PLAIN).response


def test_ollama_options(lama):
    drawn = [lama.generate("small", "the", raw=True, options=dict(seed=s, num_predict=8, top_k=40, top_p=0.9)).response for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    cut = lama.chat("parrot", ASK, options={"temperature": 0, "stop": ["jumps"]})
    assert cut.message.content == "The fox `" and cut.done_reason == "stop"


def test_ollama_log_probabilities(lama):
    whole = lama.chat("small", ASK, options=PLAIN, logprobs=True, top_logprobs=2)
    assert len(whole.logprobs) == 6 and len(whole.logprobs[0].top_logprobs) == 2


def test_ollama_embed(lama):
    two = lama.embed("small", ["the quick", "fox"]).embeddings
    assert len(two) == 2 and sum(x * x for x in two[0]) == pytest.approx(1, abs=1e-5)
    assert lama.embeddings("small", "fox").embedding == pytest.approx(two[1], abs=1e-6)


def test_ollama_embeds_in_dimensions(lama):
    assert len(lama.embed("small", "fox", dimensions=32).embeddings[0]) == 32
    with pytest.raises(ollama.ResponseError, match="dimensions: small has 32, not 8"):
        lama.embed("small", "fox", dimensions=8)


def test_ollama_errors(lama):
    with pytest.raises(ollama.ResponseError, match='there is no model "large" here'):
        lama.chat("large", ASK)
    with pytest.raises(ollama.ResponseError, match="models are served as their files are"):
        lama.create(model="x", from_="small")
    with pytest.raises(ollama.ResponseError, match="format: constrained output \\(grammars\\) is not supported"):
        lama.chat("small", ASK, format="json")
