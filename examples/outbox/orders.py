"""Two orders in SQLite, each with its row of the outbox: `python3 orders.py shop.db`."""

import json
import sqlite3
import sys

database = sqlite3.connect(sys.argv[1])
database.executescript(
    """
    create table orders (id integer primary key, customer integer, total integer);
    create table outbox (
        id integer primary key autoincrement, queue text not null, body blob not null
    );
    """
)


def order(customer, total):
    """The order and its message, or neither."""
    with database:
        made = database.execute(
            "insert into orders (customer, total) values (?, ?)", (customer, total)
        )
        if total < 0:
            raise ValueError("nothing costs less than nothing")
        body = json.dumps({"order": made.lastrowid}).encode()
        database.execute("insert into outbox (queue, body) values ('invoices', ?)", (body,))


for customer, total in [(7, 4200), (8, 100), (9, -1)]:
    try:
        order(customer, total)
    except ValueError as error:
        print(f"customer {customer}: {error}")
