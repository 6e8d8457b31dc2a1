"""A stand-in for an LLM API: streams an answer token by token, as server-sent events, and counts its calls.

python upstream.py [port]
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = (
    "The sky is blue because air scatters short waves of light more than long ones . Blue light comes to "
    "your eyes from all over the sky , while red light mostly goes straight on . At sunset the light has "
    "come a long way through the air , the blue is gone from it , and what is left is red ."
)
SECONDS_PER_TOKEN = 0.05


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    calls = 0

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
        Model.calls += 1
        print(f"call {Model.calls}: {question}", flush=True)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for token in ANSWER.split():
            self.send_event({"token": token})
            time.sleep(SECONDS_PER_TOKEN)
        self.send_event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def send_event(self, data: object) -> None:
        event = f"data: {json.dumps(data)}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8090), Model)
    print(f"model listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
