#!/usr/bin/env python3
"""Counts the words of param1, or of the attachment `body` if the text does not
fit into the environment."""

import os


def tell(word, text):
    os.write(int(os.environ["RQ_WRITE"]), f"{word} {text}\n".encode())


def main():
    try:
        with open("../attach/body", encoding="utf-8", errors="replace") as body:
            count = sum(len(line.split()) for line in body)
    except FileNotFoundError:
        count = len(os.environ["RQ_PARAM1"].split())
    print(f"{count} words")
    tell("done", f"{count} words")


try:
    main()
except Exception as error:
    tell("err", f"{type(error).__name__}: {error}")
    raise
