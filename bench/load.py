"""Many clients at once: what each waits, and whether any is refused or gets another answer than alone.

usage: bench/load.py BUILD MODEL [CLIENTS [OPTIONS...]]

Each of CLIENTS (200) begins within a second and sends one request after the other, three in all, each of a prompt of its own of some 24
words, 32 tokens are written for each and streamed. Before, one client alone does the same. OPTIONS go to `cotan serve`. Prints
tokens a second, what half of the clients and 99 in 100 waited for the first token and for the whole, and errors.
"""
import http.client
import json
import random
import subprocess
import sys
import threading
import time

ROUNDS, ALONE, TOKENS = 3, 8, 32
WORDS = "the quick brown fox jumps over a lazy dog while seven ships sail north and winter comes".split()


def prompt(k):
    return " ".join(random.Random(k).choices(WORDS, k=24))


def ask(port, k):
    """(text, tokens, seconds to the first token, seconds in all)"""
    begin, first, text, tokens = time.monotonic(), None, "", 0
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"prompt": prompt(k), "max_tokens": TOKENS, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, "seed": 0}
    connection.request("POST", "/v1/completions", json.dumps(body))
    reply = connection.getresponse()
    if reply.status != 200:
        raise RuntimeError(f"{reply.status} {reply.read()[:200]}")
    ended = False
    for line in reply:
        if not line.startswith(b"data: "):
            continue
        first = first or time.monotonic()
        if line.startswith(b"data: [DONE]"):
            ended = True
            break
        event = json.loads(line[6:])
        if event.get("error"):
            raise RuntimeError(event["error"])
        text += "".join(choice["text"] for choice in event["choices"])
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    connection.close()
    if not ended:
        raise RuntimeError("the stream has no end")
    return text, tokens, (first or time.monotonic()) - begin, time.monotonic() - begin


def counts(port):
    """Steps, tokens read and tokens written, by the server's own count."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    return [sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"cotan_{name}{{")) for name in
            ("steps_total", "prefilled_tokens_total", "generated_tokens_total")]


def part(values, p):
    return sorted(values)[min(len(values) - 1, int(p * len(values)))]


def main():
    build, model = sys.argv[1:3]
    clients = int(sys.argv[3]) if len(sys.argv) > 3 else 200
    server = subprocess.Popen([f"{build}/cotan", "serve", model, "--port", "0", *sys.argv[4:]], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        begin = time.monotonic()
        alone = [ask(port, k) for k in range(ALONE)]
        one = sum(a[1] for a in alone) / (time.monotonic() - begin)
        got, errors = {}, []

        def client(c):
            time.sleep(c / clients)
            for r in range(ROUNDS):
                try:
                    got[c * ROUNDS + r] = ask(port, c * ROUNDS + r)
                except Exception as error:  # what a client would be told
                    errors.append(repr(error))
        was, begin = counts(port), time.monotonic()
        threads = [threading.Thread(target=client, args=(c,)) for c in range(clients)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        rate = sum(a[1] for a in got.values()) / (time.monotonic() - begin)
        steps, read, written = (b - a for a, b in zip(was, counts(port)))
        other = sum(got[k][0] != alone[k][0] for k in range(ALONE) if k in got)
        print(f"alone: {one:.1f} tokens/s; first after {part([a[2] for a in alone], .5) * 1000:.0f} ms, all after {part([a[3] for a in alone], .5) * 1000:.0f} ms")
        print(f"{clients} clients: {rate:.1f} tokens/s, {rate / one:.2f} x; "
              + "; ".join(f"{name} after {part([a[i] for a in got.values()], .5):.2f} s (99 of 100: {part([a[i] for a in got.values()], .99):.2f} s)"
                          for name, i in (("first", 2), ("all", 3))))
        print(f"{steps:.0f} steps, of {read / steps:.1f} tokens read and {written / steps:.1f} written")
        print(f"{len(got)} answers, {len(errors)} errors{': ' + errors[0] if errors else ''}; {other} of {ALONE} texts differ from those written alone")
    finally:
        server.kill()
    sys.exit(bool(errors or other))


if __name__ == "__main__":
    main()
