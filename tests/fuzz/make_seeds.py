"""Writes the first seeds of the readers of models, by their grammars: make_seeds.py FOLDER

FOLDER/gguf, FOLDER/gguf_text, FOLDER/pickle, FOLDER/torch and FOLDER/kernels, a file for each thing that the formats have. Needs Python alone.
"""
import io
import struct
import sys
import zipfile
from pathlib import Path

SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36), 10: (256, 84),
          11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
          18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2),
          26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
          40: (64, 36), 41: (128, 18)}


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def one(kind, value):
    return text(value) if kind == 8 else struct.pack("<" + SIZES[kind], value)


def gguf(pairs=(), tensors=(), version=3, align=32):
    """pairs: (key, type, value, element's type or None); tensors: (name, sizes, type)."""
    out, at = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)), 0
    for key, kind, value, element in pairs:
        out += text(key) + struct.pack("<I", kind)
        if kind == 9:
            out += struct.pack("<IQ", element, len(value)) + b"".join(one(element, v) for v in value)
        else:
            out += one(kind, value)
    data = b""
    for name, sizes, kind in tensors:
        count = 1
        for size in sizes:
            count *= size
        out += text(name) + struct.pack("<I", len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
        out += struct.pack("<IQ", kind, len(data))
        elements, size = BLOCKS[kind]
        data += bytes((17 * i + kind) % 256 for i in range(count // elements * size))
        data += bytes(-len(data) % align)
    return out + (bytes(-len(out) % align) + data if tensors else b"")


def ggufs():
    values = {k: (True if k == 7 else "a" if k == 8 else 1) for k in [*SIZES, 8]}
    yield "nothing", gguf()
    yield "version-2", gguf(version=2)
    for kind, value in values.items():
        yield f"value-{kind}", gguf([("k", kind, value, None)])
        yield f"list-{kind}", gguf([("k", 9, [value] * 3, kind)])
    yield "aligned", gguf([("general.alignment", 4, 64, None)], [("a", [3], 24), ("b", [1, 2, 1, 3], 0)], align=64)
    yield "scalar", gguf([], [("a", [], 0), ("b", [0, 5], 0)])
    for kind, (elements, _) in BLOCKS.items():
        yield f"tensor-{kind}", gguf([], [("t", [elements, 2], kind)])


def texts():
    chat = [("tokenizer.chat_template", 8, "{{ bos_token }}", None), ("tokenizer.chat_templates", 9, ["a"], 8),
            ("tokenizer.chat_template.a", 8, "{{ x }}", None)]
    words = ["<unk>", "<s>", "</s>", "\u2581", "\u2581t", "o", "\u2581to", "<0x41>"]
    for name, kind, tokens in (("llama", "llama", words), ("t5", "t5", words), ("bert", "bert", words),
                               ("gpt2", "gpt2", ["s", "t", "o", "st", "sto", "\u0120", "<s>"])):
        pairs = [("model", 8, kind, None), ("tokens", 9, tokens, 8), ("scores", 9, [-float(i) for i in range(len(tokens))], 6),
                 ("token_type", 9, [1] * (len(tokens) - 1) + [6 if kind == "llama" else 3], 5), ("bos_token_id", 4, 1, None),
                 ("eos_token_id", 4, 2, None), ("unknown_token_id", 4, 0, None), ("eot_token_id", 5, -1, None), ("add_eos_token", 7, True, None)]
        pairs += [("pre", 8, "qwen2", None), ("merges", 9, ["s t", "st o"], 8)] if kind == "gpt2" else []
        yield name, gguf([("tokenizer.ggml." + key, *rest) for key, *rest in pairs] + chat)
    yield "none", gguf()


FLOATS = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" b"0X\3\0\0\0cpuK\6tQ"
BYTES = b"(X\7\0\0\0storagectorch.storage\nUntypedStorage\nX\1\0\0\0" b"0X\3\0\0\0cpuK\6tQ"
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n(" + FLOATS + b"K\0K\2K\3\x86K\3K\1\x86\x89ccollections\nOrderedDict\n)RtR"
TENSOR_V3 = b"ctorch._utils\n_rebuild_tensor_v3\n(" + BYTES + b"K\1K\2\x85K\1\x85\x89Nctorch\nuint16\ntR"
STATE = b"\x80\2ccollections\nOrderedDict\n)Rq\0(X\1\0\0\0wq\1" + TENSOR + b"X\1\0\0\0v" + TENSOR_V3 + b"u}X\1\0\0\0mh\0sb."


def pickles():
    yield "plain", b"\x80\2(N\x88\x89K\1M\1\0J\1\0\0\0\x8a\2\xff\0\x8b\1\0\0\0\1G?\xf0\0\0\0\0\0\0X\1\0\0\0a\x8c\1bt."
    yield "containers", b"\x80\4\x95\x10\0\0\0\0\0\0\0](K\1K\2e}(K\1K\2u]K\1a}K\1K\2s)K\1\x85\x87\x940\x94h\1\x862N\x93."
    yield "memo", b"\x80\4]\x94q\5r\6\0\0\0h\0j\6\0\0\0\x86."
    yield "marks", b"(K\1(K\2K\3" b"1K\4t20."
    yield "size", b"ctorch\nSize\nK\1K\2\x86\x85R."
    yield "stack-global", b"\x80\4\x8c\5torch\x8c\7float32\x93."
    yield "tensor", b"\x80\2" + TENSOR + b"."
    yield "tensor-v3", b"\x80\2" + TENSOR_V3 + b"."
    yield "parameter", b"\x80\2ctorch._utils\n_rebuild_parameter\n" + TENSOR + b"\x88N\x87R."
    yield "state", STATE
    yield "system", b"\x80\2cposix\nsystem\nX\2\0\0\0id\x85R."


def torches():
    data = struct.pack("<6f", *range(6))
    small = STATE.replace(TENSOR_V3, b"N")
    for name, pickle in (("zip", small), ("zip-dicts", b"}X\1\0\0\0d" + small[2:-1] + b"s.")):
        room = io.BytesIO()
        with zipfile.ZipFile(room, "w") as z:
            for inner, content in [("data.pkl", pickle), ("byteorder", b"little"), ("data/0", data), ("version", b"3\n")]:
                z.writestr(zipfile.ZipInfo(f"m/{inner}"), content)
        yield name, room.getvalue()
    magic = b"\x80\2\x8a\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
    yield "before-1.6", magic + b"\x80\2M\xe9\3.\x80\2}." + small + b"\x80\2]X\1\0\0\0" b"0a." + struct.pack("<Q", 6) + data
    turned = small.replace(b"K\2K\3\x86K\3K\1\x86", b"K\3K\2\x86K\1K\3\x86")
    yield "views", magic + b"\x80\2M\xe9\3.\x80\2}." + turned + b"\x80\2]X\1\0\0\0" b"0a." + struct.pack("<Q", 6) + data


def chats():
    """What families write: the first byte is the family's place in harness/chat_parser.c (and 26 more, where the prompt has opened
    <think> and the tools are described), the second says how it is cut."""
    one = '{"name": "f", "arguments": {"a": [1, "x\\n\\ud83d\\ude00"]}}'
    parameters = "<function=f>\n<parameter=a>\nx < 1\n</parameter>\n<parameter=b>\n[1, 'a', None,]\n</parameter>\n</function>"
    texts = [
        f"<think>\nHm.\n</think>\n\nSo:\n<tool_call>\n{one}\n</tool_call>\n<tool_call>\n{one}\n</tool_call>",
        f"So:\n<tool_call>\n{parameters}\n</tool_call>",
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n<arg_key>b</arg_key>\n<arg_value>1.5e3</arg_value>\n</tool_call>",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "Hm</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_calls_section_end|>",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"true\">1</｜DSML｜parameter>\n"
        "<｜DSML｜parameter name=\"b\" string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        f"[THINK]Hm[/THINK][TOOL_CALLS]f[ARGS]{{}}[TOOL_CALLS]f[CALL_ID]x[ARGS]{{}}[TOOL_CALLS] [{one}, {one}]",
        "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n</minimax:tool_call>",
        "<seed:think>Hm</seed:think><seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>\n</seed:tool_call>",
        "<function name=\"f\"><param name=\"a\">1</param></function>",
        "<function=f>{\"a\": 1}</function>",
        "Hi>>>f\n{\"a\": 1}>>>all\nHi",
        "<|START_THINKING|>Hm<|END_THINKING|><|START_ACTION|>[\n{\"tool_name\": \"f\", \"parameters\": {}}]<|END_ACTION|>",
        "Plan\nAction: ```json\n[{\"tool_name\": \"f\", \"parameters\": {}}]\n```",
        f"<|tool_call|>[{one}]<|/tool_call|> functools[{one}]",
        f"<think>Hm</think><response>Hi</response><|tool_call|>[{one}]",
        f"<TOOLCALL>[{one}, {one}]</TOOLCALL>",
        "<|inner_prefix|>Hm<|inner_suffix|><|tools_prefix|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|tools_suffix|>",
        f"{one.replace('arguments', 'parameters')}; {one}",
        "[f(a=1, b='it\\'s \\x41', c=[True, None, {'k': 2.5,}]), g()]",
        "<|tool_call_start|>[f(a=\"b\", n=2)]<|tool_call_end|>",
        "<|think|>Hm<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>1<|tool_call:name|>f<|tool_call:args|>{}<|tool_call:end|>",
        "<|channel>thought\nHm<channel|><|tool_call>call:f{a:<|\"|>x<|\"|>,b:[1,{c:null}],<|\"|>d<|\"|>:true}<tool_call|>",
        "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"string\"<|sep|>1"
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    ]
    for i, text in enumerate(texts):
        yield f"family-{i}", bytes([i, i]) + text.encode()
    yield "described", bytes([27, 1]) + f"Hm</think>{parameters}".encode()
    yield "before-the-name", b"\0\1" + b'<tool_call>{"id": 1, "arguments": "{\\"a\\": 1}", "name": "f"}</tool_call>'


def kernels():
    """Packs of kernels (src/backend/cpu/pack.h): the harness puts identity and hashes in."""
    def level(number, begin, size):
        return struct.pack("<IIQQQQQ", number, 0, 127, begin, size, 0, 0)

    def section(kernels=(), parts=(), bases=(), imports=(), span=8192):
        tables = struct.pack("<5Q", span, len(kernels), len(parts), len(bases), len(imports))
        tables += b"".join(struct.pack("<3Q", 1, key, at) for key, at in kernels)
        code = len(tables) + 32 * len(parts) + 16 * len(bases) + 32 * len(imports)
        tables += b"".join(struct.pack("<4Q", at, size, code + begin, runs) for at, size, begin, runs in parts)
        tables += b"".join(struct.pack("<2Q", *base) for base in bases)
        tables += b"".join(struct.pack("<Q24s", at, name) for at, name in imports)
        return tables + bytes(range(64))

    def pack(*sections):
        begin, levels = 152 + 48 * len(sections), b""
        for i, content in enumerate(sections):
            levels += level(i, begin, len(content))
            begin += len(content)
        return struct.pack("<8sQ32s64sQQQQQ", b"cotanpk1", begin, b"", b"", 0, 0, len(sections), 0, 0) + levels + b"".join(sections)

    code, data = (0, 64, 0, 1), (4096, 32, 16, 0)
    yield "none", pack()
    yield "empty", pack(section())
    yield "one", pack(section([(1, 0)], [code]))
    whole = section([(1, 0), (2, 32)], [code, data], [(4096, 8), (4104, 4100)], [(4112, b"memcpy"), (4120, b"nobody")])
    yield "whole", pack(whole, whole)
    yield "same-key", pack(section([(1, 0), (1, 0)], [code]))
    yield "same-page", pack(section([], [code, (64, 8, 0, 0)]))
    yield "base-in-code", pack(section([], [code], [(0, 0)]))
    yield "far-base", pack(section([], [code, data], [(4096, 1 << 40)]))
    yield "kernel-in-data", pack(section([(1, 4096)], [code, data]))
    yield "long-name", pack(section([], [data], [], [(4096, b"x" * 24)]))
    yield "large-span", pack(section(span=1 << 40))


for folder, seeds in (("kernels", kernels()), ("gguf", ggufs()), ("gguf_text", texts()), ("pickle", pickles()), ("torch", torches()), ("chat_parser", chats())):
    (Path(sys.argv[1]) / folder).mkdir(parents=True, exist_ok=True)
    for name, content in seeds:
        (Path(sys.argv[1]) / folder / name).write_bytes(content)
