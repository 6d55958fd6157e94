"""Minutes of mixed load on `cotan serve`: whether anything fails, memory grows or a kernel is compiled.

usage: bench/mixed.py BUILD MODEL [MINUTES [CLIENTS [OPTIONS...]]]

CLIENTS (8) send one request after the other for MINUTES (10), each drawn: chats, where the model has a template, and completions,
streamed or not, likeliest or drawn tokens, a beginning of 200 words that many share, long prompts, several choices, log-probabilities,
ends, and one in eight that hangs up in the middle. OPTIONS go to `cotan serve`; with 500 MB for keys and values (--cache-memory) there
is soon no room that nobody used. Prints a line each half a minute; fails on an error, on kernels that were compiled or launches that
were interpreted after the first minute, and if memory grew by more than a twentieth from the third minute on.
"""
import collections
import http.client
import json
import random
import subprocess
import sys
import threading
import time

WORDS = "the quick brown fox jumps over a lazy dog while seven ships sail north and winter comes".split()
SHARED = " ".join(random.Random(0).choices(WORDS, k=200))


def draw(r, chats):
    """(path, body, events after which it hangs up)"""
    words = " ".join(r.choices(WORDS, k=r.choice([3, 20, 20, 150])))
    body = {"max_tokens": r.choice([1, 8, 32, 64]), "stream": r.random() < .6, "temperature": r.choice([0, .7, 1]), "seed": r.randrange(1 << 30)}
    if r.random() < .3:
        words = f"{SHARED} {words}"
    if r.random() < .2:
        body["n"] = r.randint(2, 4)
    if r.random() < .2:
        body["stop"] = [r.choice(WORDS), "\n"]
    body |= r.choice([{}, {}, {"top_p": .9}, {"top_k": 40, "min_p": .05}, {"frequency_penalty": .5}, {"logit_bias": {"5": -100}}])
    chat = chats and r.random() < .5
    if chat:
        body |= {"messages": [{"role": "user", "content": words}]} | ({"logprobs": True, "top_logprobs": 3} if r.random() < .2 else {})
    else:
        body |= {"prompt": words} | ({"logprobs": 2} if r.random() < .2 else {})
    return f"/v1/{'chat/' if chat else ''}completions", body, r.randint(1, 10) if body["stream"] and r.random() < .2 else None


def ask(port, path, body, events):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status} {reply.read()[:300]}")
        if not body["stream"]:
            choices = json.loads(reply.read())["choices"]
            if len(choices) != body.get("n", 1):
                raise RuntimeError(f"{len(choices)} choices of {body.get('n', 1)}")
            return "whole"
        for line in reply:
            if line.startswith(b"data: [DONE]"):
                return "streamed"
            if line.startswith(b"data: "):
                if json.loads(line[6:]).get("error"):
                    raise RuntimeError(line.decode())
                events = events and events - 1
                if events == 0:
                    return "hung up"
        raise RuntimeError("the stream has no end")
    finally:
        connection.close()


def chats(port):
    """Has the model a template for chats?"""
    try:
        return bool(ask(port, "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "stream": False}, None))
    except RuntimeError as error:
        if "chat template" in str(error):
            return False
        raise


def state(server, port):
    """Resident MB, kernels that were compiled, launches that were interpreted."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    value = lambda name: next(int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + " "))
    with open(f"/proc/{server.pid}/status") as f:
        resident = next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1000
    return resident, value('cotan_kernels_total{from="compiler"}'), value("cotan_launches_interpreted_total")


def main():
    build, model = sys.argv[1:3]
    minutes, clients = float(sys.argv[3]) if len(sys.argv) > 3 else 10, int(sys.argv[4]) if len(sys.argv) > 4 else 8
    options = sys.argv[5:] if "--cache-memory" in sys.argv else ["--cache-memory", "500MB", *sys.argv[5:]]
    server = subprocess.Popen([f"{build}/cotan", "serve", model, "--port", "0", *options], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        chat, end, kinds, errors = chats(port), time.monotonic() + 60 * minutes, collections.Counter(), []

        def client(c):
            r = random.Random(c)
            while time.monotonic() < end:
                path, body, events = draw(r, chat)
                try:
                    kinds[ask(port, path, body, events)] += 1
                except Exception as error:  # what a client would be told
                    errors.append(f"{path} {json.dumps(body)[:200]}: {error!r}")
        threads = [threading.Thread(target=client, args=(c,)) for c in range(clients)]
        for t in threads:
            t.start()
        seen = []
        while any(t.is_alive() for t in threads):
            time.sleep(min(30, max(1, end - time.monotonic())))
            seen.append(state(server, port))
            print(f"{dict(kinds)}, {len(errors)} errors; {seen[-1][0]:.0f} MB, {seen[-1][1]} kernels compiled, {seen[-1][2]} launches interpreted", flush=True)
        for error in errors[:5]:
            print(error)
        late = seen[5:] or seen
        grown, made = late[-1][0] / late[0][0], [b - a for a, b in zip(seen[min(1, len(seen) - 1)][1:], seen[-1][1:])]
        print(f"{sum(kinds.values())} answers, {len(errors)} errors; memory at the end {grown:.3f} of the third minute's; kernels compiled and launches interpreted after the first minute: {made}")
    finally:
        server.terminate()
        code = server.wait(60)
    if code:
        print(f"the server ended with {code}")
    sys.exit(bool(errors or code or grown > 1.05 or any(made)))


if __name__ == "__main__":
    main()
