"""Compares `PostgresContainer` with testcontainers' class."""

from __future__ import annotations

import inspect
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from testcontainers.community.postgres import PostgresContainer as Original

from pgfresh import Database, Error, _server
from pgfresh.testcontainers import PostgresContainer

STAND_IN = Path(__file__).parents[2] / "transcripts/pgfresh"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Uses a binary that logs its options to the returned file, and ends."""
    log = tmp_path / "log"
    monkeypatch.delenv("PGFRESH_CONTROL", raising=False)
    environment = {"PGFRESH_BIN": STAND_IN, "FAKE_LOG": log, "FAKE_LINE": "null", "FAKE_EXIT": 1}
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(_server, "_found", {})
    monkeypatch.setattr(_server, "_failed", {})
    return log


def public(of: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(of) if not name.startswith("_")}


def test_has_members_of_the_original() -> None:
    assert public(Original) <= public(PostgresContainer)


@pytest.mark.parametrize("name", ["__init__", *sorted(public(Original) - {"status"})])
def test_method_takes_arguments_of_the_original(name: str) -> None:
    ours = inspect.signature(getattr(PostgresContainer, name)).parameters
    theirs = inspect.signature(getattr(Original, name)).parameters
    positional = [
        parameter for parameter in ours.values() if parameter.kind is not parameter.KEYWORD_ONLY
    ]
    kinds = [(parameter.name, parameter.kind) for parameter in theirs.values()]
    assert [(parameter.name, parameter.kind) for parameter in positional] == kinds
    for parameter in theirs.values():
        if parameter.name != "driver" or name == "__init__":
            assert ours[parameter.name].default == parameter.default


def test_constructor_takes_arguments_of_a_container() -> None:
    ours = inspect.signature(PostgresContainer).parameters
    for base in Original.__mro__[1:-1]:
        theirs = inspect.signature(base).parameters.keys() - {"kwargs", "_wait_strategy"}
        assert theirs <= ours.keys()


def test_url_and_attributes_name_the_database() -> None:
    with PostgresContainer(username="app", password="secret", driver="psycopg") as container:
        url = container.get_connection_url()
        assert url.startswith("postgresql+psycopg://postgres:")
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as session:
            found = session.scalar(sqlalchemy.text("SELECT current_database()"))
        engine.dispose()
        assert found == container.dbname
        with psycopg.connect(
            host=container.get_container_host_ip(),
            port=container.get_exposed_port(5432),
            user=container.username,
            password=container.password,
            dbname=container.dbname,
        ) as connection:
            assert connection.info.dbname == found
        assert container.get_connection_url(driver=None).startswith("postgresql://")
        assert "@db:" in container.get_connection_url(host="db", driver="asyncpg")
        assert container.status == "running"


def test_stop_releases_the_database() -> None:
    container = PostgresContainer().start()
    database = container.database
    container.stop()
    container.stop()
    assert container.status == "not_started"
    with pytest.raises(Error, match="is not leased"):
        database.reset()
    with pytest.raises(Error, match="has not been started"):
        container.get_connection_url()


def test_one_name_serves_several_containers() -> None:
    with PostgresContainer(dbname="shop") as one, PostgresContainer(dbname="shop") as other:
        assert one.dbname == "shop"
        assert other.dbname != "shop"
        assert isinstance(other.database, Database)
        other.database.reset()


def test_command_and_scripts_shape_the_server(tmp_path: Path) -> None:
    (tmp_path / "orders.sql").write_text("CREATE TABLE orders (id int);")
    container = (
        PostgresContainer()
        .with_command(["postgres", "-c", "fsync=off", "-c", "work_mem=7MB"])
        .with_volume_mapping(tmp_path, "/docker-entrypoint-initdb.d")
    )
    with container, psycopg.connect(container.get_connection_url(driver=None)) as connection:
        assert connection.execute("SHOW work_mem").fetchone() == ("7MB",)
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (0,)


@pytest.mark.parametrize(
    ("image", "major"),
    [
        ("postgres:18", "18"),
        ("docker.io:5000/library/postgres:17.2-alpine@sha256:0123", "17"),
        ("pgvector/pgvector:0.8.1-pg16", "16"),
        ("postgis/postgis:16-3.4", "16"),
        ("postgres", None),
        ("registry:5000/postgres", None),
    ],
)
def test_tag_of_the_image_selects_the_major(image: str, major: str | None, log: Path) -> None:
    with pytest.raises(Error, match="before it was ready"):
        PostgresContainer(image, command="-c log_statement=all --max-connections=50").start()
    version = f" --postgres {major}" if major else ""
    settings = " --set log_statement=all --set max_connections=50"
    assert log.read_text() == f"started serve --shared --json{version}{settings}\n"


def test_scripts_run_in_the_order_of_their_names(tmp_path: Path, log: Path) -> None:
    container = PostgresContainer().with_copy_into_container(
        tmp_path / "a.sql", "/docker-entrypoint-initdb.d/2.sql"
    )
    container.with_volume_mapping(tmp_path / "b.sql", "/docker-entrypoint-initdb.d/1.sql")
    with pytest.raises(Error, match="before it was ready"):
        container.start()
    options = f"--sql {tmp_path}/b.sql --sql {tmp_path}/a.sql"
    assert log.read_text() == f"started serve --shared --json {options}\n"


def test_one_error_lists_unsupported_calls(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("# zone\nTZ=UTC\nPOSTGRES_DB='shop'\n")
    container = PostgresContainer(
        env={"POSTGRES_INITDB_ARGS": "-k"},
        volumes=[("data", "/var/lib/postgresql/data", "rw")],
        command="postgres -F",
        network="backend",
        privileged=True,
        shm_size="1g",
    )
    container.with_env_file(tmp_path / "env").with_bind_ports(5432, 5432).with_exposed_ports(80)
    container.with_volume_mapping(tmp_path / "a.sh", "/docker-entrypoint-initdb.d/a.sh")
    container.with_volume_mapping(tmp_path / "none", "/docker-entrypoint-initdb.d/")
    container.with_name("database").with_envs(POSTGRES_USER="app").with_tmpfs_mount("/data")
    for _ in range(2):
        with pytest.raises(Error) as raised:
            container.start()
        assert sorted((raised.value.detail or "").splitlines()) == [
            "-F in the command: only -c NAME=VALUE",
            "/docker-entrypoint-initdb.d/a.sh: only *.sql files; use [template] setup",
            "argument privileged: leave it out",
            "network: connect to get_connection_url() from this machine",
            "port 80: the server has only 5432",
            "variable POSTGRES_INITDB_ARGS: use [postgres] settings in pgfresh.toml",
            "variable TZ: use [postgres] settings in pgfresh.toml",
            f"volume /docker-entrypoint-initdb.d/: {tmp_path}/none is not a directory",
            "volume /var/lib/postgresql/data: only /docker-entrypoint-initdb.d can have one",
            "with_bind_ports: read the port from get_exposed_port",
        ]


@pytest.mark.parametrize("name", ["exec", "get_logs", "get_wrapped_container", "wait"])
def test_docker_methods_raise_an_error(name: str) -> None:
    arguments = ["true"] if name == "exec" else []
    with pytest.raises(Error, match=f"no container, and so no {name}"):
        getattr(PostgresContainer(), name)(*arguments)
