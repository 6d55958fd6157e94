"""Oniguruma's regular expressions in tokenizer.json where they differ from PCRE2's: each is followed, or refused in a sentence."""
import json

import pytest
from support.patterns import PATTERNS

from cotan import lm


def tokenizer(folder, pattern, vocab=()):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "post_processor": None,
        "decoder": None, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        "model": {"type": "WordLevel", "vocab": {"?": 0, **{piece: i + 1 for i, piece in enumerate(vocab)}}, "unk_token": "?"}}))
    return lm.Tokenizer(path)


def test_pieces(tmp_path):
    wrong = []
    for pattern, text, pieces in PATTERNS:
        vocab = sorted({text[i:j] for i in range(len(text)) for j in range(i + 1, len(text) + 1)})
        found = [vocab[i - 1] for i in tokenizer(tmp_path, pattern, vocab).encode(text)]
        wrong += [(pattern, text, found, pieces)] if found != pieces else []
    assert wrong == []


def test_words_alone_have_the_digits_of_latin_1(tmp_path):
    """\\w has six that [\\w] does not."""
    for char in "²³¹¼½¾":
        for pattern, text in (("\\w+", f"a{char}"), ("[\\W]+", f"-{char}")):
            assert tokenizer(tmp_path, pattern, [text]).encode(text) == [1]
        for pattern, text in (("[\\w]+", f"a{char}"), ("[[:alnum:]]+", f"a{char}"), ("\\W+", f"-{char}")):
            assert tokenizer(tmp_path, pattern, [text[0], char]).encode(text) == [1, 2]


REFUSED = {
    "(?s)a": 'the pattern has a group "(?s" that is not followed, at byte 0 of 5',
    "a(?P<n>b)": 'the pattern has a group "(?P" that is not followed, at byte 1 of 9',
    "(?~ab)": 'the pattern has a group "(?~" that is not followed, at byte 0 of 6',
    "(?iW)a": 'the pattern has a group "(?iW" that is not followed, at byte 0 of 6',
    "(*FAIL)": 'the pattern has a group "(*" that is not followed, at byte 0 of 7',
    "(?#a": "the pattern has a comment that does not end, at byte 4 of 4",
    "[a[b]": "the pattern has a class that does not end, at byte 0 of 5",
    "[" * 9 + "a" + "]" * 9: "the pattern has more than 8 classes in each other, at byte 8 of 19",
    "a" + "*" + "{2}" * 17: "the pattern has more than 16 quantifiers one after the other, at byte 47 of 53",
    "(" * 65 + ")" * 65: "the pattern has more than 64 groups in each other, at byte 64 of 130",
    "(?i)" * 18: "the pattern has more than 16 options one after the other, at byte 64 of 72",
    "a{3,1}": "the pattern is not understood: byte 5: numbers out of order in {} quantifier",
    "\\p{Letter}": "the pattern is not understood: byte 10: unknown property after \\P or \\p"}


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_is_refused(tmp_path, pattern):
    with pytest.raises(Exception) as error:
        tokenizer(tmp_path, pattern)
    assert str(error.value).partition("pre_tokenizer: ")[2] == REFUSED[pattern]
