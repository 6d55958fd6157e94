"""Requests at once against one after the other, and beside llama.cpp's server, of one GGUF file.

usage: bench/serving.py BUILD MODEL.gguf [LLAMA_SERVER [PAIRS]]

Each server gets 32 requests at once, each with a prompt of its own of some 32 tokens, and writes 64 tokens for each from the
likeliest each time; four of them again, one after the other. Servers take turns, PAIRS (3) times. Prints tokens a second, and
whether what was written beside others is what was written alone; then what a beginning of 1,000 tokens that all share costs.
"""
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

AT_ONCE, ALONE, TOKENS = 32, 4, 64
WORDS = "the quick brown fox jumps over a lazy dog while seven ships sail north and winter comes".split()


def prompt(k, n=24):
    return " ".join(WORDS[(k * 7 + i * (k % 5 + 1)) % len(WORDS)] for i in range(n))


def ask(port, text):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"prompt": text, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    if "choices" not in answer:
        sys.exit(f"serving: {answer}")
    return answer["choices"][0]["text"], answer["usage"]


class Server:
    def __init__(self, name, port, command):
        self.name, self.port = name, port
        begin = time.monotonic()
        self.process = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self.ready():
            time.sleep(0.05)
        self.started = time.monotonic() - begin

    def ready(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1000

    def together(self, salt):
        begin = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(lambda k: ask(self.port, prompt(k + salt)), range(AT_ONCE)))
        return sum(u["completion_tokens"] for _, u in answers) / (time.monotonic() - begin), [text for text, _ in answers]

    def alone(self, salt):
        begin = time.monotonic()
        answers = [ask(self.port, prompt(k + salt)) for k in range(ALONE)]
        return sum(u["completion_tokens"] for _, u in answers) / (time.monotonic() - begin), [text for text, _ in answers]


def main():
    build, model = sys.argv[1:3]
    servers = [Server("cotan", 8191, [f"{build}/cotan", "serve", model, "--context", "2048", "--max-sequences", str(AT_ONCE)])]
    if len(sys.argv) > 3 and sys.argv[3]:
        servers.append(Server("llama-server", 8192, [sys.argv[3], "-m", model, "-t", str(os.cpu_count()), "-c", str(2048 * AT_ONCE),
                                                     "-np", str(AT_ONCE), "--no-webui"]))
    pairs = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    seen = {s.name: ([], []) for s in servers}
    try:
        for s in servers:
            print(f"{s.name}: ready after {s.started:.1f} s, {s.resident():.0f} MB resident", flush=True)
        for k in range(pairs):
            for s in servers:
                both, texts = s.together(1000 * k)
                one, same = s.alone(1000 * k)
                seen[s.name][0].append(both)
                seen[s.name][1].append(one)
                equal = sum(a == b for a, b in zip(texts, same))
                print(f"{s.name}: {both:.1f} tokens/s at once, {one:.1f} alone; {equal} of {ALONE} texts equal", flush=True)
        for s in servers:
            both, one = (statistics.median(x) for x in seen[s.name])
            print(f"{s.name}: median {both:.1f} at once, {one:.1f} alone: {both / one:.2f} x; {s.resident():.0f} MB resident")
        if len(servers) > 1:
            ratios = [a / b for a, b in zip(*(seen[s.name][0] for s in servers))]
            print(f"cotan : llama-server at once, median of {pairs} pairs: {statistics.median(ratios):.2f}")
        port, begin = servers[0].port, " ".join(prompt(k, 40) for k in range(22))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            usage = list(pool.map(lambda k: ask(port, f"{begin} {k}")[1], range(AT_ONCE)))
        known = [u["prompt_tokens_details"]["cached_tokens"] for u in usage]
        print(f"a shared beginning, {usage[0]['prompt_tokens']} tokens each: {sorted(known)[0]} known of one, {sorted(known)[1]} or more of the others")
    finally:
        for s in servers:
            s.process.kill()


if __name__ == "__main__":
    main()
