#!/usr/bin/env python3
"""Records what transformers makes of expressions.py and templates/: expressions.jsonl and expected/NAME.json.

usage: tests/data/chat/record.py, with a Python that has transformers; TZ=UTC
"""
import json
from pathlib import Path

import conversations
import expressions
import reference

HERE = Path(__file__).parent


def main():
    with open(HERE / "expressions.jsonl", "w") as file:
        for template in expressions.templates():
            text = reference.render(template, {**expressions.VARIABLES, "messages": [conversations.USER], "tools": None,
                                               "documents": None, "add_generation_prompt": False})
            file.write(json.dumps([template, text], ensure_ascii=False) + "\n")
    (HERE / "expected").mkdir(exist_ok=True)
    for path in sorted((HERE / "templates").glob("*.jinja")):
        texts = {name: reference.render_chat(path.read_text(), messages, tools, variables)
                 for name, messages, tools, variables in conversations.CONVERSATIONS}
        (HERE / "expected" / (path.stem + ".json")).write_text(json.dumps(texts, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    main()
