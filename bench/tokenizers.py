"""Tokenizers beside Hugging Face's on one thread, in turns: python bench/tokenizers.py BUILD [TEXT]

Eight tokenizers are trained (tests/parity/tokenizers_made.py) and read TEXT as a whole and line by line, and made-up lines in many
scripts. Printed is the time of the reference over ours, the median of the turns. Needs tokenizers and sentencepiece.
"""
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parents[1]
os.environ["COTAN_BUILD"] = sys.argv[1]
sys.path[0] = str(ROOT / "tests")  # not this folder, whose file has the name of the library
import tokenizers  # noqa: E402
from parity.tokenizers_made import made  # noqa: E402
from support.tokenizer import Tokenizer  # noqa: E402
from support.tokenizers_texts import lines  # noqa: E402

TURNS = 5


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def ratio(ours, theirs):
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(TURNS)]
    return statistics.median(t / o for o, t in pairs), statistics.median(o for o, _ in pairs)


def main():
    texts = {"many scripts": lines(20000, seed=3)}
    if len(sys.argv) > 2:
        whole = Path(sys.argv[2]).read_text()
        texts["text, whole"] = [whole]
        texts["text, lines"] = whole.splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in made(Path(folder)):
            mine, theirs = Tokenizer(f"{folder}/{name}.json"), tokenizers.Tokenizer.from_file(f"{folder}/{name}.json")
            for what, parts in texts.items():
                data = [p.encode() for p in parts]
                size = sum(map(len, data)) / 1e6
                # The reference's fast way gives no offsets, as ours does when it is not asked for them.
                fast = ratio(lambda: [mine.run(d) for d in data], lambda: [theirs.encode_batch_fast([p]) for p in parts])
                full = ratio(lambda: [mine.run(d, offsets=True) for d in data], lambda: [theirs.encode(p) for p in parts])
                print(f"{name:9} {what:13} {size:5.2f} MB  ids {fast[0]:5.2f} x ({size / fast[1]:6.1f} MB/s)"
                      f"  with offsets {full[0]:5.2f} x ({size / full[1]:6.1f} MB/s)", flush=True)


if __name__ == "__main__":
    main()
