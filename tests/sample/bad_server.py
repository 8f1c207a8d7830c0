"""A completions server that misbehaves on request: ``python bad_server.py '{"mode": "cut", ...}'``. Prints its port, then serves.

Its "model" answers with words made from (prompt, seed, number of the choice) at a temperature above 0, and with one fixed text where
nothing is left to chance. So it passes the questions at the start, and then misbehaves in one of `MODES`.
"""

import hashlib
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OPTIONS = {"mode": "good", "every": 3, "after": 0, "ignores": [], "name": "made-up", "dialect": "openai"} | json.loads(
    sys.argv[1]
)
LOCK = threading.Lock()
COUNT = {"asked": 0, "served": 0}


def text(prompt, seed, index, body):
    sure = body.get("temperature", 1) == 0 and "temperature" not in OPTIONS["ignores"]
    limits = {"top_k": lambda v: v == 1, "top_p": lambda v: v < 0.01, "min_p": lambda v: v == 1}
    sure |= any(k in body and hit(body[k]) and k not in OPTIONS["ignores"] for k, hit in limits.items())
    source = prompt if sure else f"{prompt}|{seed if 'seed' not in OPTIONS['ignores'] else time.time_ns()}|{index}"
    return " ".join(f"w{b}" for b in hashlib.sha256(source.encode()).digest()[:12])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, content, *, cut=None, headers=()):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for header in headers:
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(data[:cut])
        self.wfile.flush()
        if cut is not None:
            self.close_connection = True
            self.connection.close()

    def do_GET(self):
        if self.path == "/v1/models":
            self.answer(200, OPTIONS.get("models", {"data": [{"id": OPTIONS["name"]}]}))
        elif self.path == "/count":
            self.answer(200, COUNT)
        else:
            self.answer(404, {"error": "no such page"})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with LOCK:
            COUNT["asked"] += 1
            asked = COUNT["asked"] - OPTIONS["after"]
        mode = OPTIONS["mode"] if asked > 0 and asked % OPTIONS["every"] == 0 else "good"
        n = 1 if "n" in OPTIONS["ignores"] else body.get("n", 1)
        if n > OPTIONS.get("slots", n):
            self.answer(400, {"error": {"message": f"n must be at most {OPTIONS['slots']}"}})
            return
        if mode == "few":
            n = max(1, n // 2)
        if self.path.startswith("/v1/chat") and "chat" in OPTIONS["ignores"]:
            self.answer(404, {"error": "this model has no chat template"})
            return
        choices = [self.choice(body, i) for i in range(n)]
        given = {
            "model": OPTIONS["name"],
            "choices": choices,
            "usage": {"prompt_tokens": 3, "completion_tokens": 12 * n},
        }
        self.misbehave(mode, given)

    def choice(self, body, i):
        chat = self.path == "/v1/chat/completions"
        said = text(json.dumps(body["messages"]) if chat else str(body["prompt"]), body.get("seed"), i, body)
        found = {"index": i, "finish_reason": "length"}
        for stop in body.get("stop", []) if "stop" not in OPTIONS["ignores"] else []:
            if stop in said:
                said, found["finish_reason"] = said[: said.index(stop)], "stop"
        found |= {"message": {"role": "assistant", "content": said}} if chat else {"text": said}
        if "logprobs" in body and "logprobs" not in OPTIONS["ignores"]:
            scores = [-0.5] * OPTIONS.get("listed", 12)
            found["logprobs"] = {"content": [{"logprob": s} for s in scores]} if chat else {"token_logprobs": scores}
        return found

    def endless(self, piece, pause):
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        self.trickle(piece, pause)

    def trickle(self, piece, pause):
        try:
            while True:
                self.wfile.write(piece)
                time.sleep(pause)
        except OSError:  # the client has had enough
            self.close_connection = True

    def misbehave(self, mode, given):
        if mode == "die":
            self.answer(200, given, cut=30)
            os._exit(1)
        elif mode == "cut":
            self.answer(200, given, cut=40)
        elif mode == "500":
            self.answer(500, {"error": {"message": "out of memory"}})
        elif mode == "busy":
            self.answer(429, {"error": "too many"}, headers=[("Retry-After", "0")])
        elif mode == "not_json":
            self.answer(200, json.dumps(given).encode()[:60])
        elif mode == "empty":
            self.answer(200, given | {"choices": []})
        elif mode == "aborted":
            given["choices"][0]["finish_reason"] = "abort"
            self.answer(200, given)
        elif mode == "slow":
            time.sleep(2.5)
            self.answer(200, given)
        elif mode == "400":
            self.answer(400, {"error": {"message": "prompt too long"}})
        elif mode in ("endless", "drip"):
            self.endless(b" " * (1 << 20 if mode == "endless" else 1), 0 if mode == "endless" else 0.1)
        elif mode == "headers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            self.trickle(b"X-A: b\r\n", 0.1)
        elif mode == "hang_up":
            self.close_connection = True
            self.connection.close()
        else:
            self.answer(200, given)
            with LOCK:
                COUNT["served"] += 1


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()
