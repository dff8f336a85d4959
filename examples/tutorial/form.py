"""A web form: a new user gets a mail and a picture."""

import html
import signal
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jobs

FORM = """<!doctype html><title>Sign up</title>
<form method="post">
<label>Name <input name="name" required></label>
<label>Mail <input name="mail" type="email" required></label>
<button>Sign up</button>
</form>
"""


class Form(BaseHTTPRequestHandler):
    def do_GET(self):
        self.say(200, FORM)

    def do_POST(self):
        length = min(int(self.headers.get("content-length", 0)), 10_000)
        fields = urllib.parse.parse_qs(self.rfile.read(length).decode())
        try:
            name, mail = fields["name"][0], fields["mail"][0]
        except KeyError as missing:
            return self.say(400, f"What is your {missing.args[0]}?\n")
        try:
            jobs.put("mail", to=mail, text=f"Welcome, {name}!")
            jobs.put("image", name=name)
        except OSError:
            # This process keeps nothing: the user has to try again.
            return self.say(503, "Please try again in a minute.\n")
        # Both jobs are on disk, so the form may promise them.
        self.say(200, f"Thank you, {html.escape(name)}. A mail is on its way.\n")

    def say(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit())
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Form).serve_forever()
