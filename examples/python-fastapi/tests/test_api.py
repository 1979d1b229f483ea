"""The API, with a database for each test."""

import asyncio

import pytest
from httpx2 import AsyncClient

pytestmark = pytest.mark.anyio


async def bikes(client: AsyncClient) -> dict[str, int]:
    response = await client.get("/stations")
    return {station["name"]: station["bikes"] for station in response.json()}


async def test_first_trip_has_number_1(client: AsyncClient) -> None:
    response = await client.post("/trips", params={"bike": 1})
    assert (response.status_code, response.json()) == (201, {"id": 1})
    assert await bikes(client) == {"Harbour": 1, "Market": 1}


async def test_trip_moves_the_bike(client: AsyncClient) -> None:
    trip = (await client.post("/trips", params={"bike": 1})).json()["id"]
    response = await client.post(f"/trips/{trip}/end", params={"station": 2})
    assert response.status_code == 204
    assert await bikes(client) == {"Harbour": 1, "Market": 2}


async def test_one_of_two_trips_gets_the_bike(client: AsyncClient) -> None:
    begins = [client.post("/trips", params={"bike": 1}) for _ in range(2)]
    responses = await asyncio.gather(*begins)
    assert sorted(response.status_code for response in responses) == [201, 409]


async def test_one_of_two_trips_gets_the_last_dock(client: AsyncClient) -> None:
    trips = [(await client.post("/trips", params={"bike": bike})).json()["id"] for bike in (1, 2)]
    ends = [client.post(f"/trips/{trip}/end", params={"station": 2}) for trip in trips]
    responses = await asyncio.gather(*ends)
    assert sorted(response.status_code for response in responses) == [204, 409]
    assert await bikes(client) == {"Harbour": 0, "Market": 2}
