"""Prints how a statement fails through asyncpg and its pool.

Each line of the input has the URL, the isolation level or "none" for no transaction, a first statement, and the statement that
fails. The program prints "ready" before the latter and waits for another line, so that the test can provoke the error.
"""

import asyncio
import sys

import asyncpg


async def seen(name, action):
    try:
        await action
        print(name, "ok")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        fields = [getattr(error, field, None) for field in ("sqlstate", "severity", "detail", "hint")]
        print(name, type(error).__qualname__, *fields, error)


async def wait():
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def in_transaction(connection, level, first, failing):
    async with connection.transaction(isolation=level.replace(" ", "_")):
        await connection.execute(first)
        await wait()
        if failing != "COMMIT":
            await connection.fetch(failing)


async def alone(connection, first, failing):
    await connection.execute(first)
    await wait()
    await connection.fetch(failing)


async def is_closed(connection):
    # The pool takes a broken connection away at once, and its methods raise an error.
    print("closed", connection.is_closed())


async def select(connection):
    await connection.fetch("SELECT 1")


async def connect(url):
    await (await asyncpg.connect(url)).close()


async def play(url, level, first, failing):
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        connection = await pool.acquire()
        pid = connection.get_server_pid()
        if failing == "CONNECT":
            await wait()
            await seen("connect", connect(url))
        elif level == "none":
            await seen("statement", alone(connection, first, failing))
        else:
            await seen("statement", in_transaction(connection, level, first, failing))
        # The driver may notice the end of the connection a moment after the error.
        await asyncio.sleep(0.1)
        await seen("closed", is_closed(connection))
        await seen("select", select(connection))
        await pool.release(connection)
        async with pool.acquire() as next_connection:
            print("pool", "kept" if next_connection.get_server_pid() == pid else "replaced")
            await seen("next", select(next_connection))
    print("done", flush=True)


async def main():
    while line := await asyncio.to_thread(sys.stdin.readline):
        await play(*line.rstrip("\n").split("\t"))


asyncio.run(main())
