"""Users over each protocol, with the clients people have."""

import base64
import json
import os
import subprocess
import urllib.error
import urllib.request

import greenstalk
import pytest
import quintet_jobqueue
from pymemcache.client.base import Client as Memcache
from pymemcache.exceptions import MemcacheClientError

GRANTS = """
[[user]]
name = "worker"

[[grant]]
user = "ann"
queues = ["q", "http"]
rights = ["put", "take", "settle", "peek"]

[[grant]]
user = "worker"
queues = ["jobs"]
rights = ["put", "take", "settle"]

[[listen]]
protocol = "memcache"
address = "127.0.0.1:0"

[[listen]]
protocol = "beanstalk"
address = "127.0.0.1:0"

[[listen]]
protocol = "http"
address = "127.0.0.1:0"

[[listen]]
protocol = "jobqueue"
address = "127.0.0.1:0"
user = "worker"

[[listen]]
protocol = "pinpriq"
address = "127.0.0.1:0"
user = "worker"
"""


def quintet(*arguments, **more):
    binary = os.environ.get("QUINTET", "quintet")
    run = subprocess.run(
        [binary, *arguments], check=True, capture_output=True, text=True, **more
    )
    return run.stdout


@pytest.fixture
def token():
    """What ann is given, and what the server keeps of it."""
    given, *_, kept = quintet("token", "ann", "--days", "1").splitlines()
    return given, kept


@pytest.fixture
def server(start, tmp_path, token):
    table = quintet("passwd", "ann", input="hush\n")
    config = tmp_path / "quintet.toml"
    config.write_text(f"{table}\n{token[1]}\n{GRANTS}")
    config.chmod(0o600)
    return start("--config", str(config))


def test_pymemcache_logs_in_with_its_first_set(server):
    client = Memcache(server.address, default_noreply=False)
    with pytest.raises(MemcacheClientError, match="unauthenticated"):
        client.get("q")
    with pytest.raises(MemcacheClientError, match="authentication failure"):
        client.set("auth", "ann guess")
    assert client.set("auth", "ann hush")
    assert client.set("q", "hello")
    assert client.get("q") == b"hello"
    with pytest.raises(MemcacheClientError, match="not permitted"):
        client.set("others", "hello")
    client.close()


def greenstalk_of(server, name, secret):
    """The client has no call for it: its socket is used before its first command. With the
    default tube it sends nothing by itself."""
    client = greenstalk.Client(("127.0.0.1", server.ports["beanstalk"]))
    client._sock.sendall(f"auth {name} {secret}\r\n".encode())
    assert client._reader.readline() == b"OK\r\n"
    client.use("q")
    client.watch("q")
    # A reserve needs the right to take from all that is watched.
    client.ignore("default")
    return client


@pytest.mark.parametrize("by", ["password", "token"])
def test_greenstalk(server, token, by):
    client = greenstalk_of(server, "ann", {"password": "hush", "token": token[0]}[by])
    client.put("hello")
    job = client.reserve()
    assert job.body == "hello"
    client.delete(job)
    with pytest.raises(greenstalk.UnknownResponseError, match="NOT_PERMITTED"):
        client.use("others")
    client.close()


def test_the_listeners_user_is_who_comes_by_it(server):
    with quintet_jobqueue.Client(port=server.ports["jobqueue"], timeout=120) as queue:
        queue.add("jobs", b"to: ada")
        with pytest.raises(quintet_jobqueue.ServerError):
            queue.add("q", b"to: ada")
        job = queue.reserve("jobs", timeout=5)
        assert job.data == b"to: ada"
        queue.delete(job)


def ask(server, path, body=None, **headers):
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.ports['http']}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, {name.lower(): value for name, value in error.headers.items()}


def test_http_takes_basic_and_bearer(server, token):
    def put(queue, **headers):
        body = {"messages": [{"body": "x"}]}
        return ask(server, f"/api/v1/queues/{queue}/messages", body, **headers)

    basic = base64.b64encode(b"ann:hush").decode()
    status, headers = put("http")
    assert status == 401 and "Basic" in headers["www-authenticate"]
    for login in (f"Basic {basic}", f"Bearer {token[0]}"):
        status, said = put("http", Authorization=login)
        assert status == 201 and said["ids"]
        status, _ = put("others", Authorization=login)
        assert status == 403
    status, _ = put("http", Authorization=f"Bearer {token[0][:-1]}")
    assert status == 401
