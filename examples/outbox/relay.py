"""An outbox's relay, over a table in SQLite: `python3 relay.py shop.db`, once."""

import base64
import json
import os
import sqlite3
import sys
import urllib.request

API = os.environ.get("QUINTET_API", "http://127.0.0.1:3333/api/v1")


def put(queue, rows):
    """Stores the rows' bodies. The key is made of what is sent, not of the try."""
    ids = [row[0] for row in rows]
    messages = [{"body_base64": base64.b64encode(row[1]).decode()} for row in rows]
    request = urllib.request.Request(
        f"{API}/queues/{queue}/messages",
        data=json.dumps({"messages": messages}).encode(),
        headers={
            "content-type": "application/json",
            "idempotency-key": "outbox-" + "-".join(map(str, ids)),
        },
    )
    # What is not 2xx raises, and the rows stay.
    with urllib.request.urlopen(request, timeout=60) as answer:
        print("put", json.load(answer)["ids"])


database = sqlite3.connect(sys.argv[1])
for (queue,) in database.execute("select distinct queue from outbox").fetchall():
    rows = database.execute(
        "select id, body from outbox where queue = ? order by id limit 20", (queue,)
    ).fetchall()
    put(queue, rows)
    if os.environ.get("DIE"):
        sys.exit("died between the put and the delete")
    with database:
        database.executemany("delete from outbox where id = ?", [(row[0],) for row in rows])
