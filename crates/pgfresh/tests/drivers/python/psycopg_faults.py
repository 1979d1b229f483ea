"""Prints how a statement fails through psycopg 3 and its pool.

Each line of the input has the URL, the isolation level or "none" for no transaction, a first statement, and the statement that
fails. The program prints "ready" before the latter and waits for another line, so that the test can provoke the error.
"""

import sys

import psycopg
from psycopg_pool import ConnectionPool

LEVELS = {
    "read committed": psycopg.IsolationLevel.READ_COMMITTED,
    "repeatable read": psycopg.IsolationLevel.REPEATABLE_READ,
    "serializable": psycopg.IsolationLevel.SERIALIZABLE,
}


def seen(name, action):
    try:
        action()
        print(name, "ok")
    except psycopg.Error as error:
        diagnostics = error.diag
        fields = [error.sqlstate, diagnostics.severity, diagnostics.message_detail, diagnostics.message_hint]
        print(name, type(error).__qualname__, *fields, " ".join(str(error).split()))


def wait():
    print("ready", flush=True)
    sys.stdin.readline()


def in_transaction(connection, first, failing):
    with connection.transaction():
        connection.execute(first)
        wait()
        if failing != "COMMIT":
            connection.execute(failing, prepare=True)


def alone(connection, first, failing):
    connection.execute(first)
    wait()
    connection.execute(failing, prepare=True)


def play(url, level, first, failing):
    def set_up(connection):
        connection.autocommit = True
        connection.isolation_level = LEVELS.get(level)

    with ConnectionPool(url, min_size=1, max_size=1, configure=set_up) as pool:
        connection = pool.getconn()
        if failing == "CONNECT":
            wait()
            seen("connect", lambda: psycopg.connect(url).close())
        else:
            run = alone if level == "none" else in_transaction
            seen("statement", lambda: run(connection, first, failing))
        print("closed", connection.closed, "broken", connection.broken)
        print("transaction", connection.info.transaction_status.name)
        seen("select", lambda: connection.execute("SELECT 1"))
        pool.putconn(connection)
        with pool.connection() as next_connection:
            print("pool", "kept" if next_connection is connection else "replaced")
            seen("next", lambda: next_connection.execute("SELECT 1"))
    print("done", flush=True)


for line in sys.stdin:
    play(*line.rstrip("\n").split("\t"))
