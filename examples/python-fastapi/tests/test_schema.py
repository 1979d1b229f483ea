"""The schema, with a database for each test and a driver of your choice."""

import psycopg
import pytest


@pytest.mark.parametrize("bike", [1, 2, 3])
def test_bike_has_one_trip_at_a_time(fresh_url: str, bike: int) -> None:
    with psycopg.connect(fresh_url) as connection:
        trip = connection.execute("INSERT INTO trip (bike) VALUES (%s) RETURNING id", [bike])
        # Each test begins with an empty table and a new sequence.
        assert trip.fetchone() == (1,)
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO trip (bike) VALUES (%s)", [bike])


def test_station_with_bikes_stays(fresh_url: str) -> None:
    with psycopg.connect(fresh_url) as connection:
        connection.execute("UPDATE bike SET station = 1")
        connection.execute("DELETE FROM station WHERE id = 2")
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            connection.execute("DELETE FROM station WHERE id = 1")
