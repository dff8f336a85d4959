"""Clients that speak TLS, by their own means or over a socket that does."""

import resource
import socket
import ssl
import urllib.request

import greenstalk
import pytest
from conftest import PATIENCE_S, until
from pymemcache.client.base import Client


@pytest.fixture
def secret(start):
    return start(
        "--listen",
        "memcache=127.0.0.1:0,tls=self-signed",
        "--listen",
        "beanstalk=127.0.0.1:0,tls=self-signed",
    )


@pytest.fixture
def context(secret, tmp_path):
    return ssl.create_default_context(cafile=tmp_path / "data" / "tls-self-signed.crt")


def test_pymemcache(secret, context):
    client = Client(("localhost", secret.ports["memcache"]), tls_context=context)
    body = b"x" * 200_000
    client.set("q", body)
    assert client.get("q") == body
    assert client.get("q") is None
    client.close()


def test_greenstalk(secret, context, monkeypatch):
    connect = socket.create_connection

    def under_tls(address, *rest, **more):
        return context.wrap_socket(connect(address, *rest, **more), server_hostname="localhost")

    monkeypatch.setattr(socket, "create_connection", under_tls)
    with greenstalk.Client(("127.0.0.1", secret.ports["beanstalk"])) as client:
        client.put("hello")
        job = client.reserve()
        assert job.body == "hello"
        client.delete(job)


def test_a_server_that_is_not_trusted_gets_nothing(secret):
    client = Client(
        ("localhost", secret.ports["memcache"]), tls_context=ssl.create_default_context()
    )
    with pytest.raises(ssl.SSLError):
        client.get("q")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_openssl_agrees_on(version, secret, context):
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("localhost", secret.ports["memcache"])) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as tls:
            tls.sendall(b"version\r\n")
            assert tls.recv(100).startswith(b"VERSION")
            assert tls.version() == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]


# Enough for 5,000 sockets here, and as many in the server.
FILES = 6000
UNFINISHED = 5000


@pytest.fixture
def many_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(FILES, before[0]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def hello_of(context):
    """The bytes a client begins with."""
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


def test_five_thousand_handshakes_that_nobody_finishes(many_files, start, tmp_path):
    config = tmp_path / "quintet.toml"
    config.write_text('tls_handshake_time = "3s"\nconnections_max = 5100\n')
    memcache = "memcache=127.0.0.1:0,tls=self-signed"
    server = start("--config", config, "--listen", memcache, "--listen", "http=127.0.0.1:0")
    context = ssl.create_default_context(cafile=tmp_path / "data" / "tls-self-signed.crt")
    beside = Client(("localhost", server.ports["memcache"]), tls_context=context)
    beside.set("q", b"1")
    half = hello_of(context)[:100]
    silent = []
    for _ in range(UNFINISHED):
        silent.append(socket.create_connection(server.address))
        silent[-1].sendall(half)
    assert beside.get("q") == b"1"
    beside.set("q", b"2")
    for client in silent:
        client.settimeout(PATIENCE_S)
        while client.recv(4096):
            pass
        client.close()
    assert beside.get("q") == b"2"
    beside.close()

    def counted():
        metrics = f"http://127.0.0.1:{server.ports['http']}/metrics"
        with urllib.request.urlopen(metrics, timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
        return f'quintet_tls_failures_total{{reason="timeout"}} {UNFINISHED}' in lines

    until(counted)
