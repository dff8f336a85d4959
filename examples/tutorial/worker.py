"""A worker: `python3 worker.py mail` or `python3 worker.py image`."""

import hashlib
import pathlib
import signal
import sys
import time

import jobs


def send(to, text):
    """Writes to a folder instead of a mail server, and fails without the folder."""
    name = hashlib.sha256(f"{to}\n{text}".encode()).hexdigest()[:16]
    # The name depends on the mail, so a job that is done twice leaves one file.
    pathlib.Path("sent", f"{name}.txt").write_text(f"To: {to}\n\n{text}\n")


def draw(name):
    """Draws a picture of the first letter."""
    folder = pathlib.Path("images")
    folder.mkdir(exist_ok=True)
    letter = next(letter for letter in name if letter.isalnum())
    colour = hashlib.sha256(name.encode()).hexdigest()[:6]
    (folder / f"{letter}-{colour}.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64">'
        f'<circle cx="32" cy="32" r="32" fill="#{colour}"/>'
        f'<text x="32" y="44" font-size="36" text-anchor="middle">{letter}</text></svg>\n'
    )


WORK = {"mail": send, "image": draw}
stopping = False


def stop(_signal, _frame):
    """Lets the worker finish its current job first."""
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)
queue = sys.argv[1]
while not stopping:
    try:
        jobs.take(queue, WORK[queue])
    except OSError as error:
        # The server is away. It will have every acknowledged job when it is back.
        print("no server:", error, flush=True)
        time.sleep(1)
