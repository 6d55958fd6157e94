#!/usr/bin/env python3
"""Draws the README's picture of speed beside peers from a result of bench/compare.py.

usage: bench/picture.py [RESULT.json]

Without RESULT it takes the newest one in bench/results that has most of the rows. Writes docs/images/speed.svg.
"""
import json
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def picture(report):
    """A bar for each row: the geometric mean over its cases of the ratio to the best peer, on a logarithmic axis from 1/8 to 8."""
    left, width, step, lines = 170, 420, 20, []

    def x(ratio):
        return left + width * (math.log2(min(max(ratio, 1 / 8), 8)) + 3) / 6

    y = 40
    for result in report["rows"]:
        ratios = [case["peers"][case["best"]]["ratio"] for case in result["cases"] if case["best"]]
        if not ratios:
            continue
        y += step
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        begin, end = sorted((x(1), x(mean)))
        lines += [f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{result["row"]}</text>',
                  f'<rect x="{begin:.1f}" y="{y - 6}" width="{max(end - begin, 1):.1f}" height="12" fill="{"#1a7f37" if mean >= 1 else "#cf222e"}"/>',
                  f'<text x="{left + width + 10}" y="{y + 4}">{mean:.2f}</text>']
    height = y + step
    axis = []
    for ratio, label in ((1 / 8, "1/8"), (1 / 4, "1/4"), (1 / 2, "1/2"), (1, "best peer"), (2, "2"), (4, "4"), (8, "8")):
        axis += [f'<line x1="{x(ratio):.1f}" x2="{x(ratio):.1f}" y1="44" y2="{height - 6}" stroke="#d0d7de"/>',
                 f'<text x="{x(ratio):.1f}" y="38" text-anchor="middle" fill="#57606a">{label}</text>']
    title = f'Speed of Cotan over the best peer: {report["machine"]["cpu"]}, {report["threads"]} threads, {report["date"][:10]}'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 60}" height="{height}" '
                      'font-family="sans-serif" font-size="12">',
                      '<rect width="100%" height="100%" fill="white"/>', f'<text x="8" y="18">{title}</text>', *axis, *lines, "</svg>", ""])


def newest():
    """The newest result that has at least half as many rows as the one with the most."""
    results = [(path, json.loads(path.read_text())) for path in sorted((ROOT / "bench/results").glob("20*.json"))]
    most = max(len(result["rows"]) for _, result in results)
    return [result for _, result in results if 2 * len(result["rows"]) >= most][-1]


if __name__ == "__main__":
    report = json.loads(Path(sys.argv[1]).read_text()) if len(sys.argv) > 1 else newest()
    (ROOT / "docs/images").mkdir(exist_ok=True)
    (ROOT / "docs/images/speed.svg").write_text(picture(report))
