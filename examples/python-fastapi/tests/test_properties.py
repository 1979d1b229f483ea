"""Properties that Hypothesis checks, with a reset of the database for each example."""

from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from pgfresh import Database

from bikes.app import create_app

ACTIONS = st.one_of(
    st.tuples(st.just("begin"), st.integers(1, 3)),
    st.tuples(st.just("end"), st.integers(1, 2)),
)


# The time of an example depends on the machine.
@settings(deadline=None, max_examples=30)
@given(actions=st.lists(ACTIONS, max_size=12))
def test_bikes_are_never_lost(
    fresh_session_database: Database, actions: list[tuple[str, int]]
) -> None:
    fresh_session_database.reset(close_sessions=True)
    trips: list[int] = []
    with TestClient(create_app(fresh_session_database.url)) as client:
        for action, number in actions:
            if action == "begin":
                response = client.post("/trips", params={"bike": number})
                if response.status_code == 201:
                    trips.append(response.json()["id"])
            elif trips:
                response = client.post(f"/trips/{trips[0]}/end", params={"station": number})
                if response.status_code == 204:
                    del trips[0]
        stations = client.get("/stations").json()
    assert all(station["bikes"] <= station["docks"] for station in stations)
    assert sum(station["bikes"] for station in stations) + len(trips) == 3
