"""Read the result of an SQL query, a Delta table or an Iceberg table."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from sweeps.loaders.lookup import find, library


def sql(query: str, uri: str) -> Any:
    """Read the result of an SQL query.

    Args:
        query: The query. Use `ORDER BY`, because `sweeps resume` refuses rows in another order.
        uri: The database, as a URI of SQLAlchemy, such as `sqlite:///rows.db`. The path of an
            SQLite file may be relative. As in the whole space file, `${NAME}` is replaced by an
            environment variable, so that no password needs to stand in the file.

    Returns:
        A DataFrame.

    Raises:
        ValueError: An environment variable in `uri` is not set.
    """
    import pandas as pd
    import sqlalchemy

    if re.search(r"\$[A-Za-z_]", uri):
        raise ValueError(
            "an environment variable in `uri` needs braces; write ${NAME} in place of $NAME"
        )
    prefix = "sqlite:///"
    if uri.startswith(prefix):
        uri = prefix + str(find(uri.removeprefix(prefix)).absolute())
    engine = sqlalchemy.create_engine(uri)
    try:
        with engine.connect() as connection:
            return pd.read_sql(sqlalchemy.text(query), connection)
    finally:
        engine.dispose()


def delta(path: str, version: int | None = None) -> pa.Table:
    """Read a Delta table.

    Args:
        path: Folder or URI of the table.
        version: Version of the table. By default, the latest version. With a fixed version, `sweeps
            resume` reads the same rows even if the table has changed since.

    Returns:
        All rows.
    """
    return pa.table(
        library("deltalake")
        .DeltaTable(path if "://" in path else str(find(path)), version=version)
        .to_pyarrow_table()
    )


def iceberg(
    table: str, *, catalog: str = "default", snapshot: int | None = None, **properties: str
) -> pa.Table:
    """Read a table of an Iceberg catalog.

    Args:
        table: Name of the table, such as `shop.orders`.
        catalog: Name of the catalog in the configuration of PyIceberg.
        snapshot: Id of a snapshot of the table. By default, the latest snapshot.
        properties: Properties of the catalog, such as `uri` and `warehouse`, if PyIceberg's
            configuration has no such catalog.

    Returns:
        All rows.
    """
    loaded = (
        library("pyiceberg.catalog", "pyiceberg")
        .load_catalog(catalog, **properties)
        .load_table(table)
    )
    rows: pa.Table = loaded.scan(snapshot_id=snapshot).to_arrow()
    return rows
