#!/usr/bin/env python3
"""Power cuts under a nats-server whose store is a file system of its own in a file.

    sudo cut.py NATS_SERVER [--fs ext4 ...]

For each kind of file system: a stream with `sync_interval: always` gets 2,000 entries of 16 KiB, is
purged up to entry 900, in the middle of a block, and gets five more, all acknowledged. The power cut: the server is stopped (SIGSTOP),
the file below the file system copied, the server killed, and the copy mounted. A server over the copy
must have every entry that the purge kept. Exit status 1: one lacks some. Needs root for loop devices;
a kind whose mkfs is missing is left out, and named, and with CI set that is an error.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

KINDS = {
    "ext4": (["mkfs.ext4", "-q", "-F"], ""),
    "ext4 with noauto_da_alloc": (["mkfs.ext4", "-q", "-F"], "noauto_da_alloc"),
    "xfs": (["mkfs.xfs", "-q", "-f"], ""),
}
ENTRIES, BYTES, MORE = 2000, 16 << 10, 5
KEPT_FROM = ENTRIES * 45 // 100


class Nats:
    """A connection: just enough of the protocol."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.settimeout(30)
        self.file = self.socket.makefile("rb")
        self.file.readline()
        self.socket.sendall(b'CONNECT {"verbose":false}\r\nSUB in.* 1\r\nPING\r\n')
        while self.file.readline() != b"PONG\r\n":
            pass

    def send(self, subject, body=b""):
        head = f"PUB {subject} in.1 {len(body)}\r\n".encode()
        self.socket.sendall(head + body + b"\r\n")

    def reply(self):
        while True:
            line = self.file.readline()
            if not line:
                raise EOFError("the server has closed the connection")
            if line.startswith(b"MSG "):
                body = self.file.read(int(line.split()[-1]) + 2)[:-2]
                return json.loads(body)
            if line.startswith(b"PING"):
                self.socket.sendall(b"PONG\r\n")

    def ask(self, subject, **body):
        self.send(f"$JS.API.{subject}", json.dumps(body).encode())
        reply = self.reply()
        if "error" in reply:
            raise RuntimeError(f"{subject}: {reply['error']}")
        return reply


def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Server:
    """A nats-server over this store."""

    def __init__(self, binary, store):
        self.port = port()
        config = store.parent / f"{store.name}.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{store}", sync_interval: always, max_file: 1G }}\n'
        )
        log = open(store.parent / f"{store.name}.log", "wb")
        self.process = subprocess.Popen([binary, "-c", config], stdout=log, stderr=log)

    def client(self):
        until = time.monotonic() + 30
        while True:
            try:
                client = Nats(self.port)
                client.ask("INFO")
                return client
            except (OSError, RuntimeError):
                if time.monotonic() > until or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.wait()


def body(seq):
    return (b"%d:" % seq).ljust(BYTES, b"x")


def publish(client, first, last):
    for seq in range(first, last + 1):
        client.send("log", body(seq))
    for seq in range(first, last + 1):
        ack = client.reply()
        assert ack.get("seq") == seq, f"entry {seq}: {ack}"


def cut(binary, folder, mkfs, options):
    """How many entries are missing after the power cut."""
    image, copy = folder / "store.img", folder / "copy.img"
    with open(image, "wb") as file:
        file.truncate(320 << 20)
    subprocess.run([*mkfs, image], check=True, stdout=subprocess.DEVNULL)
    mounted, server = [], None

    def mount(file, name):
        at = folder / name
        at.mkdir()
        more = ["-o", "loop" + (f",{options}" if options else "")]
        subprocess.run(["mount", *more, file, at], check=True)
        mounted.append(at)
        return at

    try:
        server = Server(binary, mount(image, "before"))
        client = server.client()
        client.ask("STREAM.CREATE.LOG", name="LOG", subjects=["log"], storage="file", num_replicas=1)
        publish(client, 1, ENTRIES)
        # What was written long ago is on the disk.
        subprocess.run(["sync", "-f", mounted[0]], check=True)
        client.ask("STREAM.PURGE.LOG", seq=KEPT_FROM)
        publish(client, ENTRIES + 1, ENTRIES + MORE)
        server.process.send_signal(signal.SIGSTOP)
        shutil.copyfile(image, copy)
        server.kill()
        # XFS mounts no two of one identity.
        subprocess.run(["umount", mounted.pop()], check=True)
        server = Server(binary, mount(copy, "after"))
        client = server.client()
        missing = 0
        for seq in range(KEPT_FROM, ENTRIES + MORE + 1):
            try:
                client.ask("STREAM.MSG.GET.LOG", seq=seq)
            except RuntimeError:
                missing += 1
        return missing
    finally:
        if server:
            server.kill()
        for at in mounted:
            subprocess.run(["umount", at], check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--fs", action="append", choices=KINDS, help="this kind; may be repeated")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("left out: loop devices need root")
        return 2
    lost, left_out = 0, []
    for name in arguments.fs or KINDS:
        mkfs, options = KINDS[name]
        if not shutil.which(mkfs[0]):
            left_out.append(name)
            continue
        with tempfile.TemporaryDirectory() as folder:
            missing = cut(arguments.binary, pathlib.Path(folder), mkfs, options)
        print(f"{name}: {missing} of {ENTRIES + MORE + 1 - KEPT_FROM} entries missing", flush=True)
        lost += missing
    for name in left_out:
        print(f"left out: {name}, as {KINDS[name][0][0]} is not there")
    return 1 if lost or left_out and os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main())
