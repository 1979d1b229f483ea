"""Definitions that all tables share: column types, naming convention, enum helper."""

import enum
from datetime import datetime
from typing import Annotated, Any, ClassVar

from sqlalchemy import BigInteger, Identity, Integer, MetaData, Text, func
from sqlalchemy.dialects.postgresql import ENUM, JSONB, TIMESTAMP
from sqlalchemy.orm import DeclarativeBase, mapped_column

Id = Annotated[int, mapped_column(BigInteger, Identity(always=True), primary_key=True)]
Quantity = Annotated[int, mapped_column(Integer)]
CreatedAt = Annotated[datetime, mapped_column(server_default=func.now())]


class Base(DeclarativeBase):
    # These are PostgreSQL's default names, so migrations don't need to specify them.
    metadata = MetaData(
        naming_convention={
            "pk": "%(table_name)s_pkey",
            "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
            "uq": "%(table_name)s_%(column_0_N_name)s_key",
            "ix": "%(table_name)s_%(column_0_N_name)s_idx",
            "ck": "%(table_name)s_%(constraint_name)s_check",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        int: BigInteger,  # identifiers and amounts of money
        str: Text,
        datetime: TIMESTAMP(timezone=True),
        dict[str, Any]: JSONB,
    }


def pg_enum(values: type[enum.Enum], name: str) -> ENUM:
    """Return the type `name`, which the migrations create, for the values of a Python enum."""
    return ENUM(
        values,
        name=name,
        create_type=False,
        values_callable=lambda members: [member.value for member in members],
    )
