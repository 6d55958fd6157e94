#!/usr/bin/env python3
"""Writes src/text/jinja_unicode.inc: what Python's str methods say of each character, as far as chat templates can ask.

usage: scripts/jinja-unicode.py > src/text/jinja_unicode.inc

Run with the Python whose Unicode version is wanted; tests/unit/test_jinja_unicode.py compares every character with the
Python at hand, and says so where that one has another version.
"""
import sys
import unicodedata

# The order of the bits in src/text/jinja_value.h.
CLASSES = [str.isprintable, str.isalpha, str.isdecimal, str.isdigit, str.isnumeric, str.isspace, str.isupper, str.islower]


def cased(c):
    return c.isupper() or c.islower() or unicodedata.category(c) == "Lt"


def ignored(c):
    """Case-ignorable: Python shows it in how it finds a word's last sigma."""
    if c == "\u03a3":
        return False
    return ("A" + c + "\u03a3").lower().endswith("\u03c2") and not ("1" + c + "\u03a3").lower().endswith("\u03c2")


def flags(cp):
    c = chr(cp)
    word = sum(1 << i for i, is_it in enumerate(CLASSES) if is_it(c))
    word |= 256 * (unicodedata.category(c) == "Lt")
    return word | 512 * cased(c) | 1024 * ignored(c)


def print_numbers(name, numbers, kind="uint32_t"):
    print(f"static const {kind} {name}[] = {{")
    line = "   "
    for n in numbers:
        word = f" {n},"
        if len(line) + len(word) > 100:
            print(line)
            line = "   "
        line += word
    print(line + "\n};")


def print_mapping(name, mapping):
    """Runs of characters that are moved alike, by 1 or by 2, and characters that become several."""
    runs, several = [], []
    for cp in range(0x110000):
        if 0xD800 <= cp < 0xE000:
            continue
        to = mapping(chr(cp))
        if to == chr(cp):
            continue
        if len(to) > 1:
            several += [cp, *(ord(c) for c in to), *[0] * (3 - len(to))]
            continue
        delta = ord(to) - cp
        if runs and runs[-1][3] == delta and cp - runs[-1][1] in (1, 2) and (
                runs[-1][0] == runs[-1][1] or cp - runs[-1][1] == runs[-1][2]):
            runs[-1][2] = cp - runs[-1][1]
            runs[-1][1] = cp
        else:
            runs.append([cp, cp, 1, delta])
    print_numbers(f"{name}_runs", [n for run in runs for n in run], "int32_t")
    print_numbers(f"{name}_several", several)


def main():
    print(f"// Written by scripts/jinja-unicode.py of Unicode {unicodedata.unidata_version}; do not edit.")
    print("// Where the classes change: the character times 2048, and the classes from there on.")
    classes, last = [], None
    for cp in range(0x110000):
        now = 0 if 0xD800 <= cp < 0xE000 else flags(cp)
        if now != last:
            classes.append(cp << 11 | now)
        last = now
    print_numbers("classes", classes)
    print("// First, last, stride, what is added; then characters with the up to three that they become.")
    print_mapping("upper", str.upper)
    print_mapping("title", str.title)
    print_mapping("lower", str.lower)


if __name__ == "__main__":
    sys.exit(main())
