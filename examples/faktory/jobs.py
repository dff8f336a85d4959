"""Faktory's work protocol as far as the form and the worker need it. In an
application this is the client library of your language."""

import json
import secrets
import socket


class Faktory:
    """One connection; a worker says its name, `wid`."""

    def __init__(self, host="127.0.0.1", port=7419, wid=None):
        self.stream = socket.create_connection((host, port), timeout=60).makefile("rwb")
        self.stream.readline()  # +HI {"v":2}
        self.ask("HELLO", {"v": 2, "wid": wid} if wid else {"v": 2})

    def ask(self, verb, argument=""):
        """Sends a line; answers the text of the reply, or None for no job."""
        if not isinstance(argument, str):
            argument = json.dumps(argument, separators=(",", ":"))
        self.stream.write(f"{verb} {argument}\r\n".encode())
        self.stream.flush()
        head = self.stream.readline().decode().rstrip("\r\n")
        if head.startswith("-"):
            raise RuntimeError(head[1:])
        if not head.startswith("$"):
            return head[1:]
        length = int(head[1:])
        if length < 0:
            return None
        return self.stream.read(length + 2)[:-2].decode()

    def push(self, jobtype, args, **more):
        job = {"jid": secrets.token_hex(12), "jobtype": jobtype, "args": args, **more}
        self.ask("PUSH", job)
        return job["jid"]

    def fetch(self, *queues):
        job = self.ask("FETCH", " ".join(queues))
        return job and json.loads(job)
