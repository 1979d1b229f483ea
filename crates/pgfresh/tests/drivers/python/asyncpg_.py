"""asyncpg through the gateway at DATABASE_URL. Each function checks one promise."""

import asyncio
import io
import os
from urllib.parse import urlsplit, urlunsplit

import asyncpg

URL = urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path="/asyncpg"))
LARGE = 64 << 20


async def any_name_is_a_database(connection):
    assert await connection.fetchval("SELECT current_database()") == "asyncpg"
    other = await asyncpg.connect(URL, server_settings={"work_mem": "123kB"})
    assert await other.fetchval("SHOW work_mem") == "123kB"
    await other.close()


async def statements_are_prepared(connection):
    statement = await connection.prepare("SELECT $1::int + 1")
    assert [await statement.fetchval(number) for number in range(100)] == list(range(1, 101))
    await connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    assert await connection.fetchval("SELECT $1::mood", "ok") == "ok"


async def rows_are_copied_both_ways(connection):
    await connection.execute("CREATE TEMP TABLE t (n int, word text)")
    rows = [(number, "X") for number in range(100_000)]
    await connection.copy_records_to_table("t", records=rows)
    out = io.BytesIO()
    await connection.copy_from_query("SELECT n FROM t ORDER BY n", output=out)
    assert out.getvalue().split() == [str(number).encode() for number in range(100_000)]


async def a_statement_is_cancelled(connection):
    try:
        await connection.execute("SELECT pg_sleep(60)", timeout=0.2)
        raise AssertionError("it went on")
    except asyncio.TimeoutError:
        pass
    assert await connection.fetchval("SELECT 1") == 1


async def a_batch_needs_no_turns(connection):
    await connection.execute("CREATE TEMP TABLE batch (n int UNIQUE)")
    await connection.executemany("INSERT INTO batch VALUES ($1)", [(n,) for n in range(5000)])
    try:
        await connection.executemany("INSERT INTO batch VALUES ($1)", [(n,) for n in range(9999, 0, -1)])
        raise AssertionError("no error")
    except asyncpg.UniqueViolationError:
        pass
    assert await connection.fetchval("SELECT count(*) FROM batch") == 5000


async def news_comes_unasked(connection):
    news = asyncio.get_running_loop().create_future()
    await connection.add_listener("news", lambda _, pid, channel, text: news.set_result((pid, text)))
    speaker = await asyncpg.connect(URL)
    await speaker.execute("NOTIFY news, 'X'")
    assert await asyncio.wait_for(news, 30) == (speaker.get_server_pid(), "X")
    await speaker.close()


async def errors_are_recovered_from(connection):
    for sql, error in [
        ("SELECT 1/0", asyncpg.DivisionByZeroError),
        ("SELECT FROM nowhere", asyncpg.UndefinedTableError),
        ("SELEC", asyncpg.PostgresSyntaxError),
    ]:
        try:
            async with connection.transaction():
                await connection.fetchval(sql)
            raise AssertionError(sql)
        except error:
            pass
    assert not connection.is_in_transaction()
    assert await connection.fetchval("SELECT 1") == 1


async def values_may_be_large(connection):
    value = os.urandom(1 << 20) * (LARGE >> 20)
    assert await connection.fetchval("SELECT $1::bytea", value) == value


async def a_pool_resets_and_reuses(_):
    async with asyncpg.create_pool(URL, min_size=2, max_size=8) as pool:

        async def use(number):
            async with pool.acquire() as connection:
                await connection.execute("SET work_mem = '99kB'")
                return await connection.fetchval("SELECT $1::int", number)

        assert await asyncio.gather(*map(use, range(200))) == list(range(200))
        assert await pool.fetchval("SHOW work_mem") != "99kB"


async def main():
    for promise in [
        any_name_is_a_database,
        statements_are_prepared,
        rows_are_copied_both_ways,
        a_statement_is_cancelled,
        a_batch_needs_no_turns,
        news_comes_unasked,
        errors_are_recovered_from,
        values_may_be_large,
        a_pool_resets_and_reuses,
    ]:
        connection = await asyncpg.connect(URL)
        await promise(connection)
        await connection.close()
        print(promise.__name__)


asyncio.run(main())
