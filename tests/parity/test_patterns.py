"""The pieces of tests/support/patterns.py are those of `tokenizers`."""
import pytest
from support.patterns import PATTERNS

tokenizers = pytest.importorskip("tokenizers")


def test_pieces():
    split = tokenizers.pre_tokenizers.Split
    assert [(pattern, text, [piece for piece, _ in split(tokenizers.Regex(pattern), "isolated").pre_tokenize_str(text)])
            for pattern, text, _ in PATTERNS] == PATTERNS
