"""Replaces testcontainers' `PostgresContainer`, with a pgfresh database instead of a container.

    from pgfresh.testcontainers import PostgresContainer

    with PostgresContainer("postgres:18") as postgres:
        engine = sqlalchemy.create_engine(postgres.get_connection_url())

The constructor and the methods are the same as in testcontainers 4. `start` leases a database and
`stop` releases it. pgfresh selects user, password and port, and sets the attributes in `start`. If
there were calls that only a container supports, `start` raises one `Error` that lists these calls.
"""

from __future__ import annotations

import re
import shlex
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote, urlsplit

from ._database import Database
from ._server import Error, server

__all__ = ["PostgresContainer"]

# typing.Self is in Python 3.11.
_Self = TypeVar("_Self", bound="PostgresContainer")

_UNSET: Any = object()

_INIT_FOLDER = PurePosixPath("/docker-entrypoint-initdb.d")

_NO_EFFECT_ENV = {
    "PGDATA",
    "POSTGRES_DB",
    "POSTGRES_HOST_AUTH_METHOD",
    "POSTGRES_INITDB_WALDIR",
    "POSTGRES_PASSWORD",
    "POSTGRES_USER",
}
"""Variables of the image that pgfresh can ignore. testcontainers sets three of them itself."""

_NO_EFFECT_KWARGS = {
    "_wait_strategy",
    "auto_remove",
    "cpu_count",
    "labels",
    "mem_limit",
    "platform",
    "remove",
    "shm_size",
    "tmpfs",
}
"""Other arguments that change neither the data nor the connection."""

_PRESET = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
"""Settings that pgfresh sets itself."""


class PostgresContainer:
    """pgfresh database with the methods of testcontainers' class.

    `image` selects the major version, such as `"postgres:18"`. If the tag doesn't contain a number,
    the project's server determines the version. The database gets the name `dbname` unless another
    database already has this name. Without `dbname`, pgfresh generates a name. `template` is the
    template of the database, by default the template in `pgfresh.toml`; `"template1"` is empty.
    """

    username: str
    """User of the database, a superuser. `start` sets it."""
    password: str
    """Password of the user. `start` sets it."""
    dbname: str
    """Name of the database. `start` sets it."""

    def __init__(
        self,
        image: str = "postgres:latest",
        port: int = 5432,
        username: str | None = None,
        password: str | None = None,
        dbname: str | None = None,
        driver: str | None = "psycopg2",
        *,
        docker_client_kw: dict[str, Any] | None = None,
        command: str | list[str] | None = None,
        env: dict[str, str] | None = None,
        name: str | None = None,
        ports: list[int] | None = None,
        volumes: list[tuple[str, str, str]] | None = None,
        network: Any = None,
        network_aliases: list[str] | None = None,
        transferables: list[Any] | None = None,
        template: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.image = image
        self.port = port
        self.username, self.password, self.dbname = username or "", password or "", dbname or ""
        self.driver = f"+{driver}" if driver else ""
        self.env = dict(env or {})
        self._name = dbname
        self._template = template
        self._command = command
        self._scripts: dict[str, Path] = {}
        """Initialization files, by their names in the container."""
        self._refused: list[str] = []
        """Calls that pgfresh doesn't support, each with an alternative."""
        self._database: Database | None = None
        self.with_kwargs(**kwargs)
        self.with_exposed_ports(*(ports or ()))
        for volume in volumes or ():
            self.with_volume_mapping(*volume)
        for transferable in transferables or ():
            self.with_copy_into_container(*transferable)
        if network is not None:
            self.with_network(network)
        if network_aliases:
            self.with_network_aliases(*network_aliases)

    @property
    def database(self) -> Database:
        """pgfresh database, for example to reset it. Raises `Error` before `start`."""
        if self._database is None:
            raise Error("the container has not been started")
        return self._database

    def start(self: _Self) -> _Self:
        """Leases the database. Raises `Error` after calls that only a container supports."""
        options = self._server_options()
        if self._refused:
            raise Error(
                "pgfresh has no container, and cannot start this one",
                detail="\n".join(dict.fromkeys(self._refused)),
            )
        self.stop()
        try:
            self._lease(self._name, options)
        except Error as error:
            # Two containers can have databases with the same name, but two leases can't, so lease
            # a database with a generated name.
            if self._name is None or error.code != "42P04":
                raise
            self._lease(None, options)
        url = urlsplit(self.database.url)
        self.username = unquote(url.username or "")
        self.password = unquote(url.password or "")
        self.dbname = self.database.name
        return self

    def _lease(self, name: str | None, options: list[str]) -> None:
        self._database = Database(template=self._template, name=name, _server=server(*options))

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Releases the database, unless `stop` has already done so."""
        self._release(failed=False)

    def _release(self, failed: bool) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.release(failed=failed)

    def __enter__(self: _Self) -> _Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._release(failed=exc_type is not None)

    def get_connection_url(self, host: str | None = None, driver: str | None = _UNSET) -> str:
        """Returns the SQLAlchemy URL, `postgresql+psycopg2://…`.

        `driver` replaces the constructor's driver. With None, the URL has no driver.
        """
        chosen = self.driver if driver is _UNSET else f"+{driver}" if driver else ""
        url = urlsplit(self.database.url)
        place = url.netloc
        if host is not None:
            place = f"{url.netloc.rpartition('@')[0]}@{host}:{url.port}"
        return url._replace(scheme=f"postgresql{chosen}", netloc=place).geturl()

    def get_container_host_ip(self) -> str:
        """Returns the host of the server."""
        return urlsplit(self.database.url).hostname or ""

    def get_exposed_port(self, port: int) -> int:
        """Returns the port of the server. `port` must be the constructor's port."""
        if int(port) != self.port:
            raise Error(f"port {port} is not exposed", detail=f"PostgreSQL has port {self.port}.")
        return urlsplit(self.database.url).port or self.port

    @property
    def status(self) -> str:
        """Returns `running` while the database is leased, otherwise `not_started`."""
        return "not_started" if self._database is None else "running"

    def reload(self) -> None:
        """Does nothing, because `status` is always up to date."""

    def with_env(self: _Self, key: str, value: str) -> _Self:
        """Sets a variable. `start` refuses variables that would change the server."""
        self.env[key] = value
        return self

    def with_envs(self: _Self, **variables: str) -> _Self:
        """Sets variables, like `with_env`."""
        self.env.update(variables)
        return self

    def with_env_file(self: _Self, env_file: str | PathLike[str]) -> _Self:
        """Sets the variables in a file whose lines are `NAME=VALUE`."""
        for line in Path(env_file).read_text().splitlines():
            name, found, value = line.strip().removeprefix("export ").partition("=")
            if found and not name.startswith("#"):
                self.env[name.strip()] = value.strip().strip("'\"")
        return self

    def with_command(self: _Self, command: str | list[str]) -> _Self:
        """Changes server settings: `postgres -c NAME=VALUE …`."""
        self._command = command
        return self

    def with_volume_mapping(
        self: _Self, host: str | PathLike[str], container: str, mode: str = "ro"
    ) -> _Self:
        """Runs SQL files, which testcontainers would mount in /docker-entrypoint-initdb.d."""
        path, target = Path(host), PurePosixPath(container)
        if target == _INIT_FOLDER:
            if not path.is_dir():
                return self._refuse(f"volume {container}", f"{path} is not a directory")
            for file in path.iterdir():
                self._add_script(file, file.name)
        elif target.parent == _INIT_FOLDER:
            self._add_script(path, target.name)
        else:
            self._refuse(f"volume {container}", "only /docker-entrypoint-initdb.d can have one")
        return self

    def with_copy_into_container(
        self: _Self, transferable: Any, destination_in_container: str, mode: int = 0o644
    ) -> _Self:
        """Runs an SQL file, like `with_volume_mapping`. `transferable` must be a path."""
        if isinstance(transferable, PathLike):
            return self.with_volume_mapping(fspath(transferable), destination_in_container)
        return self._refuse("with_copy_into_container", "the source must be a path")

    def with_bind_ports(self: _Self, container: str | int, host: str | int | None = None) -> _Self:
        """Accepts PostgreSQL's port. Doesn't support a fixed host port."""
        if host is not None:
            self._refuse("with_bind_ports", "read the port from get_exposed_port")
        return self.with_exposed_ports(container)

    def with_exposed_ports(self: _Self, *ports: str | int) -> _Self:
        """Accepts PostgreSQL's port."""
        for port in ports:
            if str(port).removesuffix("/tcp") != str(self.port):
                self._refuse(f"port {port}", f"the server has only {self.port}")
        return self

    def with_kwargs(self: _Self, **kwargs: Any) -> _Self:
        """Accepts Docker options that change neither the data nor the connection."""
        for name in kwargs.keys() - _NO_EFFECT_KWARGS:
            self._refuse(f"argument {name}", "leave it out")
        return self

    def with_name(self: _Self, name: str) -> _Self:
        """Does nothing."""
        return self

    def with_tmpfs_mount(self: _Self, container_path: str, size: str | None = None) -> _Self:
        """Does nothing, because the data is already in RAM if it fits."""
        return self

    def waiting_for(self: _Self, strategy: Any) -> _Self:
        """Does nothing, because the database accepts connections after `start`."""
        return self

    def maybe_emulate_amd64(self: _Self) -> _Self:
        """Does nothing."""
        return self

    def with_network(self: _Self, network: Any) -> _Self:
        """Makes `start` fail."""
        return self._refuse("network", "connect to get_connection_url() from this machine")

    def with_network_aliases(self: _Self, *aliases: str) -> _Self:
        """Makes `start` fail."""
        return self._refuse("network_aliases", "connect to get_connection_url() from this machine")

    def exec(self, command: Any) -> NoReturn:
        """Raises `Error`."""
        _absent("exec", "Run psql or pg_dump here, with get_connection_url(driver=None).")

    def get_logs(self) -> NoReturn:
        """Raises `Error`."""
        _absent("get_logs", "pgfresh status has the path of the server's log.")

    def wait(self) -> NoReturn:
        """Raises `Error`."""
        _absent("wait")

    def get_container_id(self) -> NoReturn:
        """Raises `Error`."""
        _absent("get_container_id")

    def get_container_info(self) -> NoReturn:
        """Raises `Error`."""
        _absent("get_container_info")

    def get_docker_client(self) -> NoReturn:
        """Raises `Error`."""
        _absent("get_docker_client")

    def get_wrapped_container(self) -> NoReturn:
        """Raises `Error`."""
        _absent("get_wrapped_container")

    def copy_into_container(
        self, transferable: Any, destination_in_container: str, mode: int = 0o644
    ) -> NoReturn:
        """Raises `Error`."""
        _absent("copy_into_container", "The server reads the files of this machine.")

    def copy_from_container(self, source_in_container: str, destination_on_host: Path) -> NoReturn:
        """Raises `Error`."""
        _absent("copy_from_container")

    def _refuse(self: _Self, call: str, instead: str) -> _Self:
        self._refused.append(f"{call}: {instead}")
        return self

    def _add_script(self, path: Path, name: str) -> None:
        if name.endswith(".sql"):
            self._scripts[name] = path.absolute()
        else:
            self._refuse(f"{_INIT_FOLDER / name}", "only *.sql files; use [template] setup")

    def _server_options(self) -> list[str]:
        """Returns options for `pgfresh serve`. Refuses variables that have no equivalent option."""
        for name in self.env.keys() - _NO_EFFECT_ENV:
            self._refuse(f"variable {name}", "use [postgres] settings in pgfresh.toml")
        major = _major(self.image)
        options = ["--postgres", major] if major else []
        for name, value in self._settings().items():
            if _PRESET.get(name) != value:
                options += ["--set", f"{name}={value}"]
        for _, path in sorted(self._scripts.items()):
            options += ["--sql", str(path)]
        return options

    def _settings(self) -> dict[str, str]:
        """Returns the settings in the command."""
        words = shlex.split(self._command) if isinstance(self._command, str) else self._command
        rest = [*(words or ())]
        if rest[:1] == ["postgres"]:
            del rest[0]
        settings = {}
        while rest:
            word = rest.pop(0)
            if word == "-c" and rest:
                word += rest.pop(0)
            found = re.fullmatch(r"(?:-c|--)([\w.-]+)=(.*)", word, re.DOTALL)
            if found:
                settings[found[1].replace("-", "_").lower()] = found[2]
            else:
                self._refuse(f"{word} in the command", "only -c NAME=VALUE")
        return settings


def _major(image: str) -> str | None:
    """Returns the major version in the tag of an image: `postgres:18-alpine`, `…:0.8.1-pg18`."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    found = re.search(r"pg(\d+)", tag) or re.match(r"(\d+)", tag)
    return found and found[1]


def _absent(method: str, hint: str | None = None) -> NoReturn:
    raise Error(f"pgfresh has no container, and so no {method}", hint=hint)
