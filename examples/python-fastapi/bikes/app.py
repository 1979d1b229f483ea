"""Rental of bikes: a trip begins at one station and ends at another that has a free dock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool


def create_app(database_url: str) -> FastAPI:
    pool = AsyncConnectionPool(
        database_url, min_size=1, max_size=4, open=False, kwargs={"row_factory": dict_row}
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with pool:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/stations")
    async def list_stations() -> list[dict]:
        async with pool.connection() as connection:
            stations = await connection.execute(
                "SELECT name, docks, count(bike.id) AS bikes FROM station"
                " LEFT JOIN bike ON bike.station = station.id GROUP BY station.id ORDER BY name"
            )
            return await stations.fetchall()

    @app.post("/trips", status_code=201)
    async def begin_trip(bike: int) -> dict:
        async with pool.connection() as connection:
            taken = await connection.execute(
                "UPDATE bike SET station = NULL WHERE id = %s AND station IS NOT NULL", [bike]
            )
            if taken.rowcount == 0:
                raise HTTPException(409, "the bike is at no station")
            trip = await connection.execute(
                "INSERT INTO trip (bike) VALUES (%s) RETURNING id", [bike]
            )
            return await trip.fetchone()

    @app.post("/trips/{trip}/end", status_code=204)
    async def end_trip(trip: int, station: int) -> None:
        async with pool.connection() as connection:
            # The lock makes two trips that end at once take turns.
            await connection.execute("SELECT FROM station WHERE id = %s FOR UPDATE", [station])
            free = await connection.execute(
                "SELECT docks > (SELECT count(*) FROM bike WHERE station = station.id) AS free"
                " FROM station WHERE id = %s",
                [station],
            )
            row = await free.fetchone()
            if row is None or not row["free"]:
                raise HTTPException(409, "the station has no free dock")
            ended = await connection.execute(
                "UPDATE trip SET ended = true WHERE id = %s AND NOT ended RETURNING bike", [trip]
            )
            if ended.rowcount == 0:
                raise HTTPException(404, "there is no such trip")
            bike = await ended.fetchone()
            await connection.execute(
                "UPDATE bike SET station = %s WHERE id = %s", [station, bike["bike"]]
            )

    return app
