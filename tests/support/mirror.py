"""A mirror of the Hugging Face Hub with its layout of URLs, and the other machine that large files lie on, for tests."""
import hashlib
import http.server
import json
import re
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class Mirror:
    """`files`: name -> bytes. Those that `large` says are LFS files: named by their SHA-256, on the other machine."""

    def __init__(self, files, name="org/small", large=lambda name: name.endswith((".safetensors", ".gguf", ".bin"))):
        self.files, self.name, self.large = dict(files), name, large
        self.requests = []      # (machine, method, path, headers)
        self.hooks = {}         # "hub"|"cdn" -> f(handler, path) -> True: it has answered
        self.listing = None     # instead of the true one
        self.commit = COMMIT
        self.headers = {}       # name -> headers of its HEAD instead of the true ones
        self.hub, self.cdn = self.serve("hub"), self.serve("cdn")
        self.endpoint = f"http://127.0.0.1:{self.hub.server_address[1]}"
        self.other = f"http://localhost:{self.cdn.server_address[1]}"

    def serve(self, machine):
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                mirror.requests.append((machine, self.command, self.path, dict(self.headers)))
                hook = mirror.hooks.get(machine)
                if not (hook and hook(self, self.path)):
                    mirror.answer(machine, self)

            do_HEAD = do_GET

        server = Quiet(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def close(self):
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    @staticmethod
    def send(handler, status, body=b"", headers=(), length=None):
        handler.send_response(status)
        for key, value in dict(headers).items():
            handler.send_header(key, value)
        if "Content-Length" not in dict(headers):
            handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)
        return True

    def tag(self, name):
        data = self.files[name]
        if self.large(name):
            return hashlib.sha256(data).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def answer(self, machine, handler):
        path = handler.path.split("?")[0]
        if machine == "cdn":
            name = next((n for n in self.files if path == "/" + self.tag(n)), None)
            return self.send_file(handler, name) if name else self.send(handler, 404)
        if path.startswith(f"/api/models/{self.name}/tree/"):
            tree = [{"type": "file", "path": n, "size": len(d), "oid": self.tag(n),
                     **({"lfs": {"oid": self.tag(n), "size": len(d), "pointerSize": 130}} if self.large(n) else {})} for n, d in self.files.items()]
            return self.send(handler, 200, json.dumps(tree).encode(), {"Content-Type": "application/json"})
        if path.startswith(f"/api/models/{self.name}"):
            listing = self.listing or {"sha": self.commit, "id": self.name, "siblings": [
                {"rfilename": n, "size": len(d)} for n, d in self.files.items()]}
            return self.send(handler, 200, json.dumps(listing).encode(), {"Content-Type": "application/json"})
        found = re.fullmatch(rf"/{re.escape(self.name)}/resolve/([^/]+)/(.+)", path)
        if not found or found[2] not in self.files:
            return self.send(handler, 404, b"Not Found", {"X-Error-Code": "EntryNotFound"})
        return self.resolve(handler, found[2])

    def resolve(self, handler, name):
        headers = {"X-Repo-Commit": self.commit, "ETag": f'"{self.tag(name)}"', "Accept-Ranges": "bytes"}
        if self.large(name):
            headers |= {"X-Linked-Etag": f'"{self.tag(name)}"', "X-Linked-Size": str(len(self.files[name])),
                        "Location": f"{self.other}/{self.tag(name)}", "ETag": '"of-the-redirect"'}
        if handler.command == "HEAD":
            headers |= self.headers.get(name, {})
        if self.large(name):
            return self.send(handler, 302, b"elsewhere", headers)
        return self.send_file(handler, name, headers)

    def send_file(self, handler, name, headers=()):
        data = self.files[name]
        wanted = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        if wanted and int(wanted[1]) < len(data):
            start = int(wanted[1])
            return self.send(handler, 206, data[start:], {**dict(headers), "Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"})
        return self.send(handler, 200, data, headers)
