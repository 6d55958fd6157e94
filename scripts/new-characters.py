#!/usr/bin/env python3
"""Writes src/text/new_characters.inc: the characters that came after Unicode 8, 9 and 14, and stand-ins for the last.

usage: scripts/new-characters.py > src/text/new_characters.inc

Needs perl, of Unicode 14 or later, for the ages, tokenizers for what its regular expressions know of what came since, and the package
regex for the classes of that. tests/parity/test_tokenizers.py compares every character.
"""
import subprocess
import sys

import regex
import tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Cf".split()
# Of old characters of 3 and 4 bytes, those that patterns do not name. Han is a script that patterns ask for.
STAND_INS = {
    "Lu": (0x10a0, 0x10400), "Ll": (0x1d00, 0x10428), "Lm": (0x1d2c, 0x16b40), "Lo": (0xa000, 0x10a10), "Han": (0x3400, 0x20000),
    "Mn": (0x1ab0, 0x1d167), "Mc": (0x1b04, 0x1d165), "Me": (0x20dd, None), "Nd": (0x1b50, 0x104a0), "Nl": (0x2160, 0x10140),
    "No": (0x2460, 0x10107), "Pc": (0x2040, None), "Pd": (0x2010, 0x10ead), "Ps": (0x2045, None), "Pe": (0x2046, None),
    "Po": (0x2020, 0x10100), "Sm": (0x2200, 0x1d6c1), "Sc": (0x20a0, None), "Sk": (0x1fbd, 0x1f3fb), "So": (0x2300, 0x1f000),
    "Cf": (0x2060, 0x110bd)}
AGES = {"9.0": 9, "10.0": 10, "11.0": 10, "12.0": 10, "12.1": 10, "13.0": 10, "14.0": 10}


def ages():
    """Of each character: 9, 10 (to 14), 15 (or later); 0: before."""
    code = r"""for my $v (@ARGV) { my $re = qr/\p{Age=$v}/; for my $c (0x80 .. 0x10ffff) { next if $c >= 0xd800 && $c < 0xe000;
               print "$v $c\n" if chr($c) =~ $re } }"""
    known = {}
    old = "1.1 2.0 2.1 3.0 3.1 3.2 4.0 4.1 5.0 5.1 5.2 6.0 6.1 6.2 6.3 7.0 8.0".split()
    for line in subprocess.run(["perl", "-e", code, *old, *AGES], check=True, capture_output=True, text=True).stdout.splitlines():
        age, c = line.split()
        known[int(c)] = AGES.get(age, 0)
    unassigned = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\p{Cn}"), "removed")
    for c in range(0x80, 0x110000):
        if c not in known and not 0xd800 <= c < 0xe000 and unassigned.pre_tokenize_str(chr(c)):
            known[c] = 15
    return known


def stand_in(c):
    name = next(name for name in CATEGORIES if regex.match(rf"\p{{{name}}}", chr(c)))
    if regex.match(r"\p{Han}", chr(c)):
        assert name == "Lo", hex(c)
        name = "Han"
    assert c >= 0x800, hex(c)
    found = STAND_INS[name][c >= 0x10000]
    assert found, (hex(c), name)
    return found


def print_table(words):
    line = "   "
    for word in words:
        if len(line) + len(word) + 2 > 100:
            print(line)
            line = "   "
        line += f" {word},"
    print(line + "\n};")


def main():
    runs, known, lower = [], ages(), tokenizers.normalizers.Lowercase()
    for c, age in sorted(known.items()):
        if not age:
            continue
        found = stand_in(c) if age == 15 else age
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == found:
            runs[-1][1] = c
        else:
            runs.append([c, c, found])
    pages = sorted({c >> 8 for first, last, found in runs if found > 15 for c in range(first, last + 1)})
    print("// Written by scripts/new-characters.py of Unicode 14 and of tokenizers", tokenizers.__version__ + "; do not edit.")
    print("// First and last; what is below 16 is an age, else they are newer than 14, and it stands in.")
    print("static const uint32_t new_runs[][3] = {")
    print_table(f"{{{first:#x}, {last:#x}, {found:#x}}}" for first, last, found in runs)
    print("// 256 characters a bit: those with one newer than Unicode 14.")
    print("static const uint8_t new_pages[] = {")
    bits = bytearray(pages[-1] // 8 + 1)
    for page in pages:
        bits[page // 8] |= 1 << page % 8
    print_table(map(str, bits))
    print("// Capitals newer than Unicode 14, and their small letters.")
    print("static const uint32_t new_capitals[][2] = {")
    pairs = [(c, lower.normalize_str(chr(c))) for c in range(0x80, 0x20000) if known.get(c, 15) == 15 and not 0xd800 <= c < 0xe000]
    print_table(f"{{{c:#x}, {ord(small):#x}}}" for c, small in pairs if small != chr(c))


if __name__ == "__main__":
    sys.exit(main())
