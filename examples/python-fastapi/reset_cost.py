"""Prints how long a reset takes after a test inserts a row, like for each generated example."""

from statistics import median
from time import perf_counter

import psycopg
from pgfresh import fresh_database

with fresh_database() as database:
    sessions, resets = [], []
    for _ in range(300):
        began = perf_counter()
        with psycopg.connect(database.url) as connection:
            connection.execute("INSERT INTO trip (bike) VALUES (1)")
        ended = perf_counter()
        database.reset()
        sessions.append(ended - began)
        resets.append(perf_counter() - ended)

for name, seconds in (("session with an insert", sessions), ("reset", resets)):
    print(f"{name}: {median(seconds) * 1000:.2f} ms, at least {min(seconds) * 1000:.2f} ms")
