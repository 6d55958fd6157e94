"""Conversations that templates are rendered with: (name, messages, tools, variables)."""

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place, now.",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "A city, e.g. \"Zürich\""},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": ["integer", "null"], "description": "How many days"}}, "required": ["place"]}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Finds pages.",
    "parameters": {"type": "object", "properties": {
        "words": {"type": "array", "items": {"type": "string"}},
        "filter": {"type": "object", "properties": {"site": {"type": "string"}, "safe": {"type": "boolean"}}}},
        "required": ["words"]}}}


def call(i, name, arguments):
    return {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}


USER = {"role": "user", "content": "Hello, who are you?"}
ANSWER = {"role": "assistant", "content": "  I am a small model.\n"}
SYSTEM = {"role": "system", "content": "You are brief & polite.\nAnswer in one line."}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
GENERATE = {"add_generation_prompt": True}

CONVERSATIONS = [
    ("one", [USER], None, GENERATE),
    ("closed", [USER, ANSWER], None, {}),
    ("turns", [SYSTEM, USER, ANSWER, {"role": "user", "content": "Grüße! 你好 👋🏽 <|im_end|> {{ x }}"}], None, GENERATE),
    ("empty", [{"role": "system", "content": ""}, {"role": "user", "content": ""}, {"role": "assistant", "content": ""},
               {"role": "user", "content": "  \n"}], None, GENERATE),
    ("parts", [{"role": "user", "content": [{"type": "text", "text": "What is in "}, {"type": "image"}, {"type": "text", "text": "?"}]}],
     None, GENERATE),
    ("offered", [SYSTEM, USER], [WEATHER, SEARCH], GENERATE),
    ("called", [SYSTEM, {"role": "user", "content": "Weather in Oslo?"},
                {"role": "assistant", "content": None, "tool_calls": [call("abc123def", "get_weather", {"place": "Oslo", "days": 2})]},
                {"role": "tool", "tool_call_id": "abc123def", "name": "get_weather", "content": "{\"temperature\": -3.5}"}],
     [WEATHER], GENERATE),
    ("two calls", [{"role": "user", "content": "Oslo and Rome?"},
                   {"role": "assistant", "content": "Let me look.", "tool_calls": [
                       call("abc123de1", "get_weather", {"place": "Oslo", "unit": "celsius"}),
                       call("abc123de2", "search", {"words": ["Rome", "\"météo\""], "filter": {"safe": True, "site": None}})]},
                   {"role": "tool", "tool_call_id": "abc123de1", "name": "get_weather", "content": "cold"},
                   {"role": "tool", "tool_call_id": "abc123de2", "name": "search", "content": "warm"},
                   {"role": "assistant", "content": "Cold, warm."}, {"role": "user", "content": "Thanks"}],
     [WEATHER, SEARCH], GENERATE),
    ("thinking", [USER, {"role": "assistant", "content": "<think>\nWho am I?\n</think>\n\nA model.", "reasoning_content": "Who am I?"},
                  {"role": "user", "content": "Think again"}], None, {"add_generation_prompt": True, "enable_thinking": True}),
    ("quick", [USER], None, {"add_generation_prompt": True, "enable_thinking": False, "reasoning_effort": "low"}),
    ("documents", [{"role": "user", "content": "What do they say?"}], None,
     {"add_generation_prompt": True, "documents": [{"title": "A", "text": "One."}, {"title": "B", "text": "Two."}]}),
    ("wrong order", [ANSWER, USER], None, {}),
    ("developer", [{"role": "developer", "content": "Be terse."}, USER], None, GENERATE),
]
NOW = 1753000000  # of strftime_now
