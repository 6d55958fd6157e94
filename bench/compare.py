#!/usr/bin/env python3
"""Benchmarks of build/bench/rows beside other libraries: ours and each peer's in turns, the ratio of every pair.

usage: bench/compare.py [ROW...] [--pairs N] [--seconds X] [--threads N] [--cases WORD] [--peers NAME,...]
                        [--against DIR] [--build DIR] [--out DIR] [--OPTION VALUE of the one row ...]

`make bench` calls it with the Python of .venv-bench, in which the peers are. Of all contestants one runs at a time, the
others are stopped. A turn is the median of what a contestant does in --seconds, once at least; a pair is a turn of ours
and the next of a peer. The ratio says how many times as fast ours is: the median of the pairs', with the interval that
holds it with a chance of 90 % or more (ratios.py). --cases takes those whose name contains the word. --against DIR adds
another build of ours as a peer. Written are DATE.json (every turn), DATE.svg, and a table on standard output; progress goes
to standard error.
"""
import argparse
import datetime
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import ratios  # noqa: E402
from peers import rows as peer_rows  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-bench"
GPT2 = {"batch": 4, "context": 64, "layers": 12, "heads": 12, "width": 768}
ROWS = {"train gpt2": ["PyTorch", "PyTorch compiled", "JAX", "Cotan in Python"]} | {name: row.peers for name, row in peer_rows.ROWS.items()}
OURS, BEFORE, PYTHON = "Cotan", "Cotan before", "Cotan in Python"


def cpu_field(name):
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


def environment(peer, threads, build=None):
    """What brings each peer to its best. Each was worth more than a tenth on some machine."""
    env = os.environ | {"OMP_NUM_THREADS": str(threads)}
    if build:
        env["PYTHONPATH"] = str(Path(build).resolve() / "python")
    if peer in (OURS, BEFORE, PYTHON):
        return env
    # glibc gives large blocks back to the system and takes them again, page by page.
    env |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_TOP_PAD_": "268435456"}
    if peer.startswith("PyTorch") and cpu_field("vendor_id") not in ("", "GenuineIntel"):
        env["LD_PRELOAD"] = str(VENV / "intel_cpu.so")
    if peer in ("OpenBLAS", "oneDNN"):
        libraries = [str(path.parent) for path in VENV.glob("debian/usr/lib/**/*.so*")]
        env["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(libraries))
    if peer == "OpenBLAS" and "avx512f" in cpu_field("flags").split():
        env.setdefault("OPENBLAS_CORETYPE", "SkylakeX")  # Debian's takes newer processors for old ones
    return env


class Failed(Exception):
    pass


class Contestant:
    """A process that measures when it is asked, and is stopped in between."""

    def __init__(self, name, command, env):
        self.name, self.errors = name, tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, cwd=ROOT)
        first = self.answer()
        self.cases, self.version = {case["case"]: case for case in first["cases"]}, first["version"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            said = [text for text in self.errors.read().splitlines() if text.strip() and "hint:" not in text]
            raise Failed(f"{self.name} ended with {self.process.returncode}: {said[-1] if said else 'it said nothing'}")
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(line)

    def ask(self, line):
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() says why
        return self.answer()

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


def note(text):
    print(text, file=sys.stderr, flush=True)


def start(name, row, options, args):
    build = args.against if name == BEFORE else args.build if name in (OURS, PYTHON) else None
    if name in (OURS, BEFORE) and row != "python":
        words = [str(Path(build) / "bench/rows"), *row.split(), "--stdin", "--threads", str(args.threads)]
        if row != "train gpt2":
            words += ["--seconds", str(args.seconds)]
        words += [word for key, value in options.items() for word in (f"--{key}", str(value))]
        return Contestant(name, words, environment(name, args.threads))
    settings = GPT2 | {key: int(value) for key, value in options.items()} if row == "train gpt2" else options
    peer = PYTHON if build else name
    command = [sys.executable, str(ROOT / "bench/peers/worker.py"), peer, row, json.dumps(settings), str(args.threads),
               str(args.seconds)]
    return Contestant(name, command, environment(peer, args.threads, build))


def differs(row, case, ours, theirs):
    """What both compute must be the same, or the times say nothing."""
    if row in ("train gpt2", "cold-start"):
        return None
    cases = peer_rows.ROWS[row].cases(case["options"])
    tolerance = next((c.tolerance for c in cases if c.name == case["case"]), 1e-5)  # a case that no other library has
    for a, b in zip(ours["moments"], theirs["moments"]):
        if not peer_rows.same_moments(a, b, tolerance):
            return f"a result's mean is {b[0]:.9g} and its mean square {b[1]:.9g}, ours {a[0]:.9g} and {a[1]:.9g}"
    return None


def raise_limits(limits, row, ours):
    if row == "python":  # what it costs to record has no limit that the machine knows
        return
    for key, value in ours.ask("limits")["limits"].items():
        limits[key] = max(value, limits.get(key, 0))


def limit_fraction(case, limits, ms):
    pairs = (("flops", "flops_per_s"), ("bytes", "stream_bytes_per_s"), ("random_words", "threefry_words_per_s"),
             ("int8_ops", "int8_ops_per_s"))
    least = max((case.get(count, 0) / limits[limit] for count, limit in pairs if limits.get(limit)), default=None)
    return least * 1e3 / ms if least else None


def run_case(row, options, name, contestants, args, limits):
    ours = contestants[OURS]
    case = ours.cases[name] | {"case": name, "options": options}
    able = {peer: c for peer, c in contestants.items() if peer == OURS or name in c.cases}
    failed = {}
    if row not in ("train gpt2", "cold-start"):
        moments = ours.ask(f"check {name}")
        for peer in [peer for peer in able if peer != OURS]:
            wrong = differs(row, case, moments, able[peer].ask(f"check {name}"))
            if wrong:
                failed[peer] = wrong
                note(f"{row}, {name}: {peer} computes something else: {wrong}")
                del able[peer]
    raise_limits(limits, row, ours)
    for peer in able.values():
        peer.ask(name)  # not counted: it compiles, and touches its memory for the first time
    turns = {peer: [] for peer in able}
    for pair in range(args.pairs):
        for peer in able:
            turns[peer].append(able[peer].ask(name)["ms"])
    raise_limits(limits, row, ours)
    result = {"case": name, **{count: case.get(count, 0) for count in ("flops", "bytes", "random_words", "int8_ops")}, "ms": ratios.median(turns[OURS]),
              "turns_ms": turns[OURS], "peers": {}, "failed": failed}
    for peer in able:
        if peer != OURS:
            result["peers"][peer] = {"ms": ratios.median(turns[peer]), "turns_ms": turns[peer],
                                     **ratios.compare(turns[OURS], turns[peer])}
    others = {peer: r for peer, r in result["peers"].items() if peer != BEFORE} or result["peers"]
    result["best"] = min(others, key=lambda peer: others[peer]["ms"], default=None)
    return result


def chosen(cases, args):
    return [name for name in cases if args.cases in name]


def rows_with_cases(args, options):
    """The rows that have a case of the word asked for, as our own program lists them: it measures nothing for that."""
    lists = {}
    for row in args.rows:
        lists[row] = ["step"]  # of train gpt2, which trains some steps before it says so
        if row != "train gpt2":
            ours = start(OURS, row, options, args)
            lists[row] = list(ours.cases)
            ours.close()
    found = [row for row in args.rows if chosen(lists[row], args)]
    if not found:
        few = [name for row in args.rows for name in lists[row]]
        few = few[:6] + ["..."] * (len(few) > 6)
        sys.exit(f"bench: no case of {', '.join(args.rows)} has \"{args.cases}\" in its name, as {', '.join(few)}")
    return found


def run_row(row, options, args, versions):
    names = [OURS] + ([BEFORE] if args.against else [])
    names += [peer for peer in ROWS[row] if args.peers is None or peer in args.peers]
    contestants, missing = {}, {}
    for name in names:
        note(f"{row}: {name} starts")
        try:
            contestants[name] = start(name, row, options, args)
            versions[name] = contestants[name].version
        except Failed as why:
            if name == OURS:
                raise
            missing[name] = str(why)
            note(f"{row}: without {why}")
    limits, results = {}, []
    try:
        cases = chosen(contestants[OURS].cases, args)
        for i, name in enumerate(cases):
            note(f"{row}: {name} ({i + 1} of {len(cases)})")
            results.append(run_case(row, options, name, contestants, args, limits))
    finally:
        for contestant in contestants.values():
            contestant.close()
    for result in results:
        result["limit_fraction"] = limit_fraction(result, limits, result["ms"])
    best = [r["peers"][r["best"]]["ratio"] for r in results if r["best"]]
    return {"row": row, "options": options, "limits": limits, "missing": missing, "cases": results,
            "geometric_mean": ratios.geometric_mean(best) if best else None, "lowest": min(best, default=None)}


# ----------------------------------------------------------------------------------------- output

def interval_text(r):
    return f"{r['low']:.3f} to {r['high']:.3f}" if r["low"] is not None else "too few pairs"


def show(result):
    print(f"\n{result['row']:24}{'ms':>10} {'limit':>6}  {'best peer':18}{'ms':>10} {'ratio':>7}  90 % interval")
    for case in result["cases"]:
        part = f"{case['limit_fraction']:.2f}" if case["limit_fraction"] else ""
        line = f"{case['case']:24}{case['ms']:10.4g} {part:>6}  "
        if case["best"]:
            best = case["peers"][case["best"]]
            line += f"{case['best']:18}{best['ms']:10.4g} {best['ratio']:7.3f}  {interval_text(best)}"
        print(line)
        if BEFORE in case["peers"] and case["best"] != BEFORE:
            r = case["peers"][BEFORE]
            print(f"{'':42}{BEFORE:18}{r['ms']:10.4g} {r['ratio']:7.3f}  {interval_text(r)}")
    if result["geometric_mean"]:
        print(f"geometric mean of the ratios {result['geometric_mean']:.3f}, the lowest {result['lowest']:.3f}", flush=True)


def svg(report):
    """A line for each case: its ratio to the best peer, with its interval, on a logarithmic axis from 1/8 to 8."""
    lines, left, width, step = [], 330, 480, 18

    def x(ratio):
        return left + width * (math.log2(min(max(ratio, 1 / 8), 8)) + 3) / 6

    y = 40
    for result in report["rows"]:
        y += step
        lines.append(f'<text x="8" y="{y + 4}" font-weight="bold">{result["row"]}</text>')
        for case in result["cases"]:
            if not case["best"]:
                continue
            y += step
            r = case["peers"][case["best"]]
            sure = r["low"] is not None
            low, high = (r["low"], r["high"]) if sure else (r["ratio"], r["ratio"])
            colour = "#57606a" if not sure or low <= 1 <= high else "#1a7f37" if low > 1 else "#cf222e"
            lines += [f'<text x="20" y="{y + 4}">{case["case"]}</text>',
                      f'<text x="{left - 10}" y="{y + 4}" text-anchor="end" fill="#57606a">{case["best"]}</text>',
                      f'<line x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>',
                      f'<circle cx="{x(r["ratio"]):.1f}" cy="{y}" r="4" fill="{colour}"/>',
                      f'<text x="{left + width + 10}" y="{y + 4}">{r["ratio"]:.2f}</text>']
    height = y + 2 * step
    axis = []
    for ratio, label in ((1 / 8, "1/8"), (1 / 4, "1/4"), (1 / 2, "1/2"), (1, "as fast"), (2, "2"), (4, "4"), (8, "8")):
        axis += [f'<line x1="{x(ratio):.1f}" x2="{x(ratio):.1f}" y1="44" y2="{height - step}" stroke="#d0d7de"/>',
                 f'<text x="{x(ratio):.1f}" y="38" text-anchor="middle" fill="#57606a">{label}</text>']
    title = f'{report["machine"]["cpu"]}, threads {report["threads"]}, {report["date"]}: speed of Cotan over the best peer\'s'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{height}" '
                      'font-family="sans-serif" font-size="12">',
                      '<rect width="100%" height="100%" fill="white"/>', f'<text x="8" y="18">{title}</text>',
                      *axis, *lines, "</svg>", ""])


def machine():
    return {"cpu": cpu_field("model name") or platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "system": platform.platform(), "load_before": os.getloadavg()[0]}


def commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or None


# ------------------------------------------------------------------------------------ command line

def parse_rows(words):
    """Names may be of two words: train gpt2 matmul."""
    found = []
    while words:
        name = next((name for name in ROWS if words[:len(name.split())] == name.split()), None)
        if name is None:
            sys.exit(f"bench: there is no row \"{words[0]}\"; the rows are {', '.join(ROWS)}")
        found.append(name)
        words = words[len(name.split()):]
    return found or list(ROWS)


def parse():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0], description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cases", default="")
    parser.add_argument("--peers", type=lambda text: [name.strip() for name in text.split(",")])
    parser.add_argument("--against")
    parser.add_argument("--build", default=ROOT / "build")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results")
    args, rest = parser.parse_known_args()
    args.rows = parse_rows(args.rows)
    for build in filter(None, (args.build, args.against)):
        if not (Path(build) / "bench/rows").exists():
            sys.exit(f"bench: {Path(build) / 'bench/rows'} is not there; make build makes it")
    if args.pairs < 1:
        sys.exit(f"bench: --pairs must be 1 or more, not {args.pairs}")
    known = sorted({peer for peers in ROWS.values() for peer in peers})
    for name in filter(None, args.peers or []):
        if name not in known:
            sys.exit(f"bench: there is no peer \"{name}\"; the peers are {', '.join(known)}")
    if len(rest) % 2 or not all(word.startswith("--") for word in rest[::2]):
        sys.exit(f"bench: options are pairs, --m 256: {' '.join(rest)}")
    options = {name[2:]: value for name, value in zip(rest[::2], rest[1::2])}
    if options and len(args.rows) != 1:
        sys.exit(f"bench: --{next(iter(options))} is an option of one row, and there are {len(args.rows)}")
    return args, options


def main():
    args, options = parse()
    report = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H%M%S"), "machine": machine(),
              "commit": commit(), "versions": {}, "threads": args.threads, "pairs": args.pairs, "seconds": args.seconds,
              "rows": []}
    if report["machine"]["load_before"] > 0.5:
        note(f"bench: other programs use {report['machine']['load_before']:.1f} of {report['machine']['cores']} cores: "
             "times mean something on an idle machine alone")
    try:
        rows = rows_with_cases(args, options) if args.cases else args.rows
    except Failed as why:
        sys.exit(f"bench: {why}")
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{report['date']}.json"
    for row in rows:
        try:
            report["rows"].append(run_row(row, options, args, report["versions"]))
        except Failed as why:
            sys.exit(f"bench: {why}")
        report["machine"]["load_after"] = os.getloadavg()[0]
        show(report["rows"][-1])
        path.write_text(json.dumps(report, indent=1) + "\n")  # a row that is done is kept, whatever comes
        path.with_suffix(".svg").write_text(svg(report))
    print(f"\n{path}\n{path.with_suffix('.svg')}")
    wrong = [(r["row"], c["case"], peer) for r in report["rows"] for c in r["cases"] for peer in c["failed"]]
    if wrong:
        sys.exit("bench: not the same results: " + "; ".join(", ".join(names) for names in wrong))


if __name__ == "__main__":
    main()
