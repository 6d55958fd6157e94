"""Hostile clients on `cotan serve`: whether the answers to fixed requests change, memory grows, or the server goes down.

usage: bench/strain.py BUILD MODEL [SECONDS [CLIENTS [OPTIONS...]]]

CLIENTS (64) send for SECONDS (600), each request drawn from KINDS below: ordinary ones, and those that are too large, malformed, left
in the middle, read slowly, compressed bombs, more than the queue takes. Beside them 512 connections are held idle (one that the server
closes is opened again), and three clients send fixed requests, likeliest tokens and drawn ones with log-probabilities, whole and
streamed. OPTIONS go to `cotan serve`, which is run with a queue of 64. MODEL needs a chat template. Prints a line each half a minute.
Fails if an answer to a fixed request differs from the one before the strain in anything but ids and times, if a reply has a status that
its kind does not allow, if the lower quartile of memory in a tenth of the time is more than a twentieth from that after the first fifth
(in runs of five minutes and more), if texts, connections or files are left, or if the server does not end with status 0.
"""
import collections
import gzip
import http.client
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
import zlib

IDLE, QUEUE = 512, 64
OLD, CHAT = "/v1/completions", "/v1/chat/completions"
BAN = {"logit_bias": {"0": -100, "2": -100}}
FIXED = [(OLD, {"prompt": "the quick brown fox", "max_tokens": 24, "temperature": 0, "logprobs": 3} | BAN),
         (CHAT, {"messages": [{"role": "user", "content": "fox"}], "max_tokens": 16, "seed": 7, "temperature": 1, "top_p": .9, "n": 2, "logprobs": True,
                 "top_logprobs": 2} | BAN)]
BOMB = gzip.compress(b'{"prompt": "' + bytes(40 << 20))
LARGE = b'{"prompt": "' + b"x" * (17 << 20) + b'"}'
BUSY = {429, 503}  # the queue is full, or the bodies of all requests take too much


class Strain:
    def __init__(self, server, port, end):
        self.server, self.port, self.end = server, port, end
        self.lock = threading.Lock()
        self.kinds, self.wrong, self.differ = collections.defaultdict(list), [], []
        self.idle, self.closed = [], 0

    def connect(self, timeout=60):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def going(self):
        return time.monotonic() < self.end


def text(path, body, more=b"", method=b"POST", data=None):
    data = json.dumps(body).encode() if data is None else data
    return b"%s %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n" % (method, path.encode(), more, len(data)) + data


def replies(c, n=1, heads=False):
    """The status of each of n replies that come one after the other, and what the last says."""
    found, said, file = [], b"", c.makefile("rb")
    while len(found) < n:
        line = file.readline()
        if not line:
            return found + [0], said  # it was closed before
        status, fields = int(line.split()[1]), {}
        while (line := file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            fields[name.lower()] = value.strip()
        if status == 100:
            continue
        found.append(status)
        if heads or status == 204:
            continue
        if fields.get(b"transfer-encoding") == b"chunked":
            parts = []
            while size := int(file.readline() or b"0", 16):
                parts.append(file.read(size + 2)[:-2])
            file.readline()
            said = b"".join(parts)
        else:
            said = file.read(int(fields.get(b"content-length", 0)))
    return found, said


def send(s, data, n=1, **options):
    """The statuses of n replies."""
    with s.connect() as c:
        try:
            c.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was answered before its end
        return replies(c, n, **options)[0]


# ------------------------------------------------------------------------------------------ kinds

def drawn(r, **more):
    words = "the quick brown fox jumps over a lazy dog".split()
    body = {"max_tokens": r.choice([1, 4, 16, 40]), "temperature": r.choice([0, .7, 1]), "seed": r.randrange(1 << 30)} | BAN | more
    line = " ".join(r.choices(words, k=r.choice([2, 10, 40])))
    return (CHAT, body | {"messages": [{"role": "user", "content": line}]}) if r.random() < .5 else (OLD, body | {"prompt": line})


def whole(s, r):
    return send(s, text(*drawn(r)))


def streamed(s, r):
    return send(s, text(*drawn(r, stream=True)))


def several(s, r):
    return send(s, text(OLD, drawn(r)[1] | {"prompt": ["the", "fox", [40, 41]], "n": 3, "logprobs": 5}))


def left_stream(s, r):
    with s.connect() as c:
        c.sendall(text(*drawn(r, stream=True, max_tokens=400)))
        c.recv(r.randint(1, 2000))
    return []


def left_answer(s, r):
    with s.connect() as c:
        c.sendall(text(*drawn(r, max_tokens=400)))
        time.sleep(r.random() * .3)
    return []


def left_body(s, r):
    data = text(*drawn(r))
    with s.connect() as c:
        c.sendall(data[:r.randrange(1, len(data))])
        time.sleep(r.random() * .1)
    return []


def half_closed(s, r):
    with s.connect() as c:
        c.sendall(text(*drawn(r, stream=r.random() < .5)))
        c.shutdown(socket.SHUT_WR)
        return replies(c)[0]


def slow_reader(s, r):
    with socket.socket() as c:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        c.settimeout(60)
        c.connect(("127.0.0.1", s.port))
        c.sendall(text(*drawn(r, stream=True, max_tokens=400), b"Connection: close\r\n"))
        until = time.monotonic() + 4
        while time.monotonic() < until and c.recv(64):
            time.sleep(.05)
    return []


def slow_sender(s, r):
    with s.connect() as c:
        try:
            for byte in text(*drawn(r))[:40]:
                c.sendall(bytes([byte]))
                time.sleep(.05)
        except ConnectionError:
            pass  # without a whole head it is idle, and makes room
    return []


def too_large(s, r):
    return send(s, text(OLD, None, data=LARGE))


def declared_too_large(s, r):
    with s.connect() as c:
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{")
        return replies(c)[0]


def malformed(s, r):
    data = r.choice([b"{", b"", b"[]", b'{"prompt": ' + b"[" * 100_000, b'{"prompt": "\xff\xfe"}', b'{"prompt": 1e999}', b"\0" * 100, r.randbytes(200)])
    return send(s, text(r.choice([OLD, CHAT, "/api/chat", "/v1/embeddings", "/v1/responses", "/rerank", "/completion"]), None, data=data))


def wrong_values(s, r):
    return send(s, text(OLD, {"prompt": "x"} | r.choice([{"max_tokens": "many"}, {"n": 0}, {"prompt": [1e9]}, {"stop": 3}, {"temperature": -1}, {"logit_bias": {"x": 1}}])))


def unknown(s, r):
    fields = {f"field {i}": {"a": [None, i]} for i in range(r.choice([1, 1000]))}
    return send(s, text(*drawn(r, **fields)))


def unsupported(s, r):
    return send(s, text(OLD, {"prompt": "x"} | r.choice([{"response_format": {"type": "json_object"}}, {"mirostat": 2}, {"best_of": 9}, {"guided_regex": "a"}])))


def bomb(s, r):
    return send(s, text(OLD, None, b"Content-Encoding: gzip\r\n", data=BOMB))


def broken_gzip(s, r):
    packed = r.choice([gzip.compress(b'{"prompt": "x"}')[:-9], zlib.compress(b"x" * 9999)[:20], b"no gzip", b""])
    return send(s, text(OLD, None, b"Content-Encoding: gzip\r\n", data=packed))


def packed(s, r):
    path, body = drawn(r)
    return send(s, text(path, None, b"Content-Encoding: gzip\r\n", data=gzip.compress(json.dumps(body).encode())))


def long_prompt(s, r):
    return send(s, text(OLD, {"prompt": "the quick brown fox " * r.choice([1000, 10_000, 100_000])}))


def beyond_the_queue(s, r):
    return send(s, text(OLD, {"prompt": ["the fox"] * r.choice([20, 60, 100]), "max_tokens": 4}))


def wrong_path(s, r):
    return send(s, text(r.choice(["/", "/v1", "/v1/nothing", "/%00", "/" + "x" * 3000, "/api/pull", "/../../etc/passwd"]), {"model": "x"}))


def wrong_model(s, r):
    return send(s, text(*drawn(r, model="x" * 1000)))


def wrong_key(s, r):
    """A key that nobody asked for is not looked at; a page of another place is refused."""
    return send(s, text(*drawn(r), b"Authorization: Bearer %s\r\nOrigin: http://elsewhere.example\r\n" % (b"k" * 3000)))


def other_methods(s, r):
    method = r.choice([b"HEAD", b"OPTIONS", b"DELETE", b"PUT", b"TRACE", b"BREW"])
    return send(s, text(r.choice([OLD, "/health", "/v1/models", "/nothing"]), None, method=method, data=b""), heads=method == b"HEAD")


def pipelined(s, r):
    asks = [text("/v1/models", None, method=b"GET", data=b""), text(*drawn(r, max_tokens=2)), text(OLD, None, data=b"{"), text(*drawn(r, stream=True, max_tokens=2))]
    return send(s, b"".join(asks), 4)


def kept_alive(s, r):
    found = []
    with s.connect() as c:
        for _ in range(5):
            c.sendall(text(*drawn(r, max_tokens=2)))
            found += replies(c)[0]
            if found[-1] == 0:  # it had been idle longest
                return found[:-1]
    return found


def no_http(s, r):
    with s.connect() as c:
        c.sendall(r.choice([b"\x16\x03\x01\x02\x00", r.randbytes(500), b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 1000]))
        time.sleep(.05)
    return []


def large_head(s, r):
    with s.connect() as c:
        try:
            c.sendall(b"GET /health HTTP/1.1\r\n" + b"x-y: z\r\n" * 100_000)
            c.recv(1000)
        except ConnectionError:
            pass
    return []


def chunked(s, r):
    path, body = drawn(r)
    data = json.dumps(body).encode()
    parts = b"".join(b"%x\r\n%s\r\n" % (len(data[i:i + 7]), data[i:i + 7]) for i in range(0, len(data), 7))
    return send(s, b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode() + parts + b"0\r\n\r\n")


def expecting(s, r):
    path, body = drawn(r)
    return send(s, text(path, body, b"Expect: 100-continue\r\n"))


def others(s, r):
    path, body = r.choice([("/v1/embeddings", {"input": ["the fox", "dog"] * r.choice([1, 20])}), ("/tokenize", {"content": "fox " * 1000}),
                           ("/v1/responses", {"input": "fox", "max_output_tokens": 4, "stream": True}), ("/rerank", {"query": "fox", "documents": ["dog", "fox"]}),
                           ("/api/generate", {"prompt": "fox", "options": {"num_predict": 4}}), ("/api/chat", {"messages": [{"role": "user", "content": "fox"}], "options": {"num_predict": 4}}),
                           (OLD, {"prompt": "the quick " * 40, "max_tokens": 1, "echo": True, "logprobs": 5})])
    return send(s, text(path, body))


def looks(s, r):
    return send(s, text(r.choice(["/", "/health", "/metrics", "/v1/models", "/props", "/slots", "/api/tags", "/api/ps"]), None, method=b"GET", data=b""))


# A kind, how often it is drawn, and the statuses that its replies may have. {} sends and goes away.
KINDS = [
    (whole, 8, {200} | BUSY), (streamed, 8, {200} | BUSY), (several, 4, {200} | BUSY), (packed, 2, {200} | BUSY), (chunked, 2, {200} | BUSY),
    (expecting, 2, {200} | BUSY), (kept_alive, 4, {200} | BUSY), (pipelined, 4, {200, 400} | BUSY), (others, 6, {200} | BUSY), (looks, 4, {200}),
    (half_closed, 6, {200} | BUSY), (unknown, 3, {200} | BUSY), (left_stream, 8, {}), (left_answer, 8, {}), (left_body, 8, {}), (slow_reader, 3, {}),
    (slow_sender, 3, {}), (no_http, 4, {}), (large_head, 2, {}), (too_large, 1, {413, 503}), (declared_too_large, 3, {413}), (malformed, 6, {400, 503}),
    (wrong_values, 4, {400, 503}),
    (unsupported, 4, {400, 503}), (bomb, 2, {413, 503}), (broken_gzip, 3, {400, 503}), (long_prompt, 3, {400, 503}), (beyond_the_queue, 4, {200, 400} | BUSY),
    (wrong_path, 3, {404, 405, 501}), (wrong_model, 3, {404, 503}), (wrong_key, 3, {403}), (other_methods, 4, {200, 404, 405})]


def hostile(s, number):
    r = random.Random(number)
    functions, weights, _ = zip(*KINDS)
    while s.going():
        function, _, allowed = r.choices(KINDS, weights)[0]
        begin = time.monotonic()
        try:
            statuses = function(s, r)
        except Exception as error:  # what a client would meet
            statuses = [repr(error)]
        wrong = [status for status in statuses if status not in allowed]
        with s.lock:
            s.kinds[function.__name__].append((time.monotonic() - begin, statuses))
            s.wrong += [f"{time.monotonic() - s.end:.1f} s: {function.__name__}: {status}" for status in wrong]


# ---------------------------------------------------------------------------------- what is compared

def answer(s, path, body):
    """(status, what was said without ids and times)"""
    with s.connect(600) as c:
        c.sendall(text(path, body))
        (status,), said = replies(c)
    if not body.get("stream") or status != 200:
        return status, re.sub(rb'"id":"[^"]*"|"(created|cached_tokens)":\d+', b"", said)
    parts = collections.defaultdict(list)  # of each choice, however its text was cut
    for line in said.split(b"\n"):
        for choice in json.loads(line[6:])["choices"] if line.startswith(b"data: {") else []:
            say, p = choice.get("text") or (choice.get("delta") or {}).get("content") or "", choice.get("logprobs")
            parts[choice["index"]].append((say, json.dumps(p), choice["finish_reason"]))
    joined = {i: ("".join(p[0] for p in ps), [p[1] for p in ps if p[1] != "null"], [p[2] for p in ps if p[2]]) for i, ps in parts.items()}
    return status, json.dumps([joined, said.rstrip().endswith(b"data: [DONE]")], sort_keys=True).encode()


def fixed(s, number, asks, wanted):
    i = number
    while s.going():
        begin, (path, body) = time.monotonic(), asks[i % len(asks)]
        try:
            status, said = answer(s, path, body)
        except Exception as error:
            status, said = repr(error), b""
        with s.lock:
            s.kinds["fixed"].append((time.monotonic() - begin, [status]))
            if status not in {200} | BUSY:
                s.wrong.append(f"fixed: {status}: {said[:300]}")
            elif status == 200 and said != wanted[i % len(asks)]:
                s.differ.append((i % len(asks), said, wanted[i % len(asks)]))
        if status == 200:
            i += 1
        else:
            time.sleep(.05)


def hold_idle(s):
    """Connections that were of use once, and then say nothing."""
    while s.going():
        for c in list(s.idle):
            try:
                if c.recv(1) == b"":
                    raise ConnectionResetError
            except BlockingIOError:
                continue
            except OSError:
                c.close()
                s.idle.remove(c)
                s.closed += 1
        while len(s.idle) < IDLE and s.going():
            try:
                c = s.connect(10)
                c.sendall(text("/health", None, method=b"GET", data=b""))
                replies(c)
                c.setblocking(False)
                s.idle.append(c)
            except OSError:
                break
        time.sleep(1)


def measure(server):
    with open(f"/proc/{server.pid}/status") as f:
        values = dict(line.split(":", 1) for line in f)
    files = subprocess.run(["ls", f"/proc/{server.pid}/fd"], capture_output=True, text=True).stdout.count("\n")
    return int(values["VmRSS"].split()[0]) / 1000, int(values["Threads"]), files


def metric(port, name):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def part(values, p):
    return sorted(values)[min(len(values) - 1, int(p * len(values)))] if values else 0


# ------------------------------------------------------------------------------------------- a run

def level(values):
    """What is left between the large bodies, which come and go."""
    return part(values, .25)


def strain(server, port, seconds, clients):
    s = Strain(server, port, time.monotonic() + seconds)
    asks = [(path, body | more) for path, body in FIXED for more in ({}, {"stream": True})]
    wanted = [answer(s, *ask)[1] for ask in asks]
    before, begin = measure(server), time.monotonic()
    threads = [threading.Thread(target=hostile, args=(s, i)) for i in range(clients)]
    threads += [threading.Thread(target=fixed, args=(s, i, asks, wanted)) for i in range(3)]
    threads.append(threading.Thread(target=hold_idle, args=(s,)))
    for t in threads:
        t.start()
    seen, said = [], time.monotonic()  # (seconds, MB, threads, files)
    while s.going():
        time.sleep(1)
        seen.append((time.monotonic() - begin, *measure(server)))
        s.held = len(s.idle)
        if time.monotonic() - said >= 30:
            said = time.monotonic()
            print(f"{seen[-1][0]:.0f} s: {sum(map(len, s.kinds.values()))} requests, {len(s.differ)} differ, {len(s.wrong)} wrong; {len(s.idle)} idle; "
                  f"{level([m for _, m, *_ in seen[-30:]]):.1f} MB, {seen[-1][2]} threads, {seen[-1][3]} files", flush=True)
    for t in threads:
        t.join()
    for c in s.idle:
        c.close()
    after = [answer(s, *ask) for ask in asks]
    s.differ += [(i, said, wanted[i]) for i, (status, said) in enumerate(after) if said != wanted[i]]
    deadline = time.monotonic() + 20
    while True:  # each question is a connection, which the server closes a moment later
        s.left = [metric(port, "cotan_sequences_running"), metric(port, "cotan_sequences_queued"), max(0, measure(server)[2] - before[2] - 1)]
        if not any(s.left) or time.monotonic() > deadline:
            return s, seen, before
        time.sleep(.2)


def report(s, seen, before, seconds):
    for name, found in sorted(s.kinds.items()):
        times, statuses = [t for t, _ in found], collections.Counter(status for _, many in found for status in many)
        print(f"{name:20} {len(found):6}  half after {part(times, .5):6.3f} s, 99 of 100 {part(times, .99):6.3f} s, all {max(times):6.3f} s  "
              + " ".join(f"{status}: {n}" for status, n in sorted(statuses.items(), key=str)))
    tenths = [[m for t, m, *_ in seen if k * seconds <= 10 * t < (k + 1) * seconds] for k in range(10)]
    levels = [level(values) for values in tenths if values]
    late = levels[2:] or levels
    off = max(abs(each / late[0] - 1) for each in late)
    print(f"MB: {before[0]:.1f} before; levels of each tenth {' '.join(f'{each:.1f}' for each in levels)}; at most {max(m for _, m, *_ in seen):.1f}; {off:.3f} from the third")
    print(f"{sum(map(len, s.kinds.values()))} requests, {len(s.differ)} answers differ, {len(s.wrong)} replies are wrong; "
          f"of {IDLE} idle connections {s.held} were open at the end, {s.closed} were closed meanwhile; left: {s.left[0]:.0f} texts running, {s.left[1]:.0f} waiting, {s.left[2]} files")
    for line in s.wrong[:10]:
        print(line)
    for i, said, wanted in s.differ[:2]:
        print(f"fixed {i}:\n{said.decode()}\ninstead of\n{wanted.decode()}")
    return bool(s.differ or s.wrong or any(s.left) or seconds >= 300 and off > .05)


def main():
    build, model = sys.argv[1:3]
    seconds, clients = float(sys.argv[3]) if len(sys.argv) > 3 else 600, int(sys.argv[4]) if len(sys.argv) > 4 else 64
    server = subprocess.Popen([f"{build}/cotan", "serve", model, "--port", "0", "--max-queued", str(QUEUE), *sys.argv[5:]], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        failed = report(*strain(server, port, seconds, clients), seconds)
    finally:
        server.terminate()
        begin = time.monotonic()
        code = server.wait(60)
    print(f"the server ended with {code} after {time.monotonic() - begin:.2f} s")
    sys.exit(bool(failed or code))


if __name__ == "__main__":
    main()
