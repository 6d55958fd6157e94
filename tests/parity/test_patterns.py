"""The pieces of tests/support/patterns.py are those of `tokenizers`."""
import pytest
from support.patterns import PATTERNS

tokenizers = pytest.importorskip("tokenizers")
NEWER = () if tuple(map(int, tokenizers.__version__.split(".")[:2])) >= (0, 22) else ("[[:punct:]]+",)  # Oniguruma 6.9.10 counts `$+<` as punctuation


def test_pieces():
    split = tokenizers.pre_tokenizers.Split
    patterns = [row for row in PATTERNS if row[0] not in NEWER]
    assert [(pattern, text, [piece for piece, _ in split(tokenizers.Regex(pattern), "isolated").pre_tokenize_str(text)])
            for pattern, text, _ in patterns] == patterns
