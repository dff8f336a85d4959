"""Jobs over Quintet's JSON API, with nothing but Python's own library."""

import contextlib
import json
import os
import urllib.error
import urllib.request

API = os.environ.get("QUINTET_API", "http://127.0.0.1:3333/api/v1")


def ask(path, **fields):
    """Sends a request to the server, and returns its reply."""
    request = urllib.request.Request(
        API + path,
        data=json.dumps(fields).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or "null")


def put(queue, **job):
    """Stores a job. The job is on disk when this function returns."""
    ask(f"/queues/{queue}/messages", messages=[{"body": json.dumps(job)}])


def take(queue, work):
    """Waits for a job and does it with `work`; returns False if there was none.

    An exception of `work` goes to the server, which decides whether the job is
    tried again.
    """
    taken = ask(f"/queues/{queue}/reserve", wait_ms=1000, lease_ms=30000)["messages"]
    for job in taken:
        try:
            work(**json.loads(job["body"]))
        except Exception as error:
            end(job, "fail", error=f"{type(error).__name__}: {error}")
        else:
            end(job, "finish")
    return bool(taken)


def end(job, how, **fields):
    # 409: the lease is over. Another worker has the job by now, and will end it.
    with contextlib.suppress(urllib.error.HTTPError):
        ask(f"/leases/{job['lease']}/{how}", **fields)
