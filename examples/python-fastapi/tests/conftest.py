from collections.abc import AsyncIterator

import pytest
from httpx2 import ASGITransport, AsyncClient

from bikes.app import create_app


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client(fresh_url: str) -> AsyncIterator[AsyncClient]:
    app = create_app(fresh_url)
    # httpx does not start the app, so the fixture does.
    async with (
        app.router.lifespan_context(app),
        AsyncClient(transport=ASGITransport(app), base_url="http://bikes") as client,
    ):
        yield client
