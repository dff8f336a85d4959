"""A web form that pushes a job for each order: `python3 form.py`, then port 8000."""

import html
import http.server
import urllib.parse

import jobs

PAGE = """<!doctype html><meta charset=utf-8><title>Orders</title>
<form method=post>Mail to: <input name=to type=email required> <button>Order</button></form><p>{}</p>
"""


class Form(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.show("")

    def do_POST(self):
        length = min(int(self.headers.get("content-length", 0)), 10_000)
        fields = urllib.parse.parse_qs(self.rfile.read(length).decode())
        to = fields.get("to", [""])[0]
        # When push returns the job is on disk. Tried again once, then it is dead.
        jobs.Faktory().push("Confirm", [to], queue="mail", retry=1)
        self.show(f"Thank you, {html.escape(to)}.")

    def show(self, text):
        body = PAGE.format(text).encode()
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Form).serve_forever()
