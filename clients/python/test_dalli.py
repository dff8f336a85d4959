"""Dalli, Ruby's client of memcached, runs `dalli.rb`."""

import pathlib
import subprocess

from conftest import PATIENCE_S

PROGRAM = pathlib.Path(__file__).with_name("dalli.rb")


def run(server, *login):
    address = "%s:%d" % server.address
    subprocess.run(["ruby", PROGRAM, address, *login], check=True, timeout=PATIENCE_S)


def test_without_users(server):
    run(server)


def test_with_a_login(guarded):
    run(guarded, "ann", "hush")
