"""Clients that speak TLS, by their own means or over a socket that does."""

import socket
import ssl

import greenstalk
import pytest
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
