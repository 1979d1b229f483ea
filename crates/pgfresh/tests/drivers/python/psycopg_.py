"""psycopg 3 through the gateway at DATABASE_URL. Each function checks one promise."""

import os
import threading
import time
from urllib.parse import urlsplit, urlunsplit

import psycopg

URL = os.environ["DATABASE_URL"]
LARGE = 64 << 20


def connect(name="psycopg", **options):
    return psycopg.connect(urlunsplit(urlsplit(URL)._replace(path=f"/{name}")), **options)


def any_name_is_a_database():
    with connect() as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("psycopg",)
    with connect(options="-c work_mem=123kB", application_name="me") as connection:
        assert connection.execute("SHOW work_mem").fetchone() == ("123kB",)
        assert connection.info.parameter_status("application_name") == "me"


def statements_are_prepared():
    with connect(prepare_threshold=0) as connection:
        for number in range(5):
            assert connection.execute("SELECT %s::int + 1", [number]).fetchone() == (number + 1,)
        prepared = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        assert prepared[0] >= 1, prepared


def rows_are_copied_both_ways():
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE t (n int, word text)")
        with cursor.copy("COPY t FROM STDIN") as copy:
            for number in range(100_000):
                copy.write_row((number, "X"))
        with cursor.copy("COPY (SELECT n FROM t ORDER BY n) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int4"])
            assert [row[0] for row in copy.rows()] == list(range(100_000))


def a_statement_is_cancelled():
    with connect(autocommit=True) as connection:
        threading.Timer(0.2, connection.cancel_safe).start()
        begun = time.monotonic()
        try:
            connection.execute("SELECT pg_sleep(60)")
            raise AssertionError("it went on")
        except psycopg.errors.QueryCanceled:
            assert time.monotonic() - begun < 30
        assert connection.execute("SELECT 1").fetchone() == (1,)


def a_pipeline_needs_no_turns():
    with connect(autocommit=True) as connection:
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int", [number]) for number in range(500)]
            assert [cursor.fetchone()[0] for cursor in cursors] == list(range(500))
        try:
            with connection.pipeline():
                connection.execute("SELECT 1/0")
                connection.execute("SELECT 1")
            raise AssertionError("no error")
        except psycopg.errors.DivisionByZero:
            pass
        with connection.cursor() as cursor:
            cursor.executemany("SELECT %s::int", [(number,) for number in range(100)], returning=True)
            assert cursor.fetchone() == (0,)


def news_comes_unasked():
    with connect(autocommit=True) as listener, connect(autocommit=True) as speaker:
        listener.execute("LISTEN news")
        speaker.execute("NOTIFY news, 'X'")
        news = next(listener.notifies(timeout=30))
        assert (news.channel, news.payload, news.pid) == ("news", "X", speaker.info.backend_pid)


def errors_are_recovered_from():
    with connect() as connection:
        connection.execute("CREATE TEMP TABLE t (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        connection.commit()
        for sql, error in [
            ("SELECT 1/0", psycopg.errors.DivisionByZero),
            ("SELECT FROM nowhere", psycopg.errors.UndefinedTable),
            ("SELEC", psycopg.errors.SyntaxError),
        ]:
            try:
                connection.execute(sql)
                raise AssertionError(sql)
            except error:
                connection.rollback()
        connection.execute("INSERT INTO t VALUES (1), (1)")
        try:
            connection.commit()
            raise AssertionError("no error")
        except psycopg.errors.UniqueViolation:
            pass
        try:
            with connection.transaction(), connection.transaction():
                connection.execute("SELECT 1/0")
        except psycopg.errors.DivisionByZero:
            pass
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)


def values_may_be_large():
    with connect() as connection:
        value = os.urandom(1 << 20) * (LARGE >> 20)
        back = connection.execute("SELECT %b::bytea", [value], binary=True).fetchone()[0]
        assert bytes(back) == value


def cursors_stay_at_the_server():
    with connect() as connection, connection.cursor("rows") as cursor:
        cursor.execute("SELECT * FROM generate_series(1, 10000)")
        assert sum(1 for _ in cursor) == 10_000


for promise in [
    any_name_is_a_database,
    statements_are_prepared,
    rows_are_copied_both_ways,
    a_statement_is_cancelled,
    a_pipeline_needs_no_turns,
    news_comes_unasked,
    errors_are_recovered_from,
    values_may_be_large,
    cursors_stay_at_the_server,
]:
    promise()
    print(promise.__name__)
