"""
Wait for the server of ``KWIT_TEST_MSSQL_URL``, make its database, and set what new databases take after.

``python -m tests.mssql_server [--read-committed-snapshot ON|OFF]``: for CI, whose server starts beside the job.
"""

import argparse
import contextlib
import importlib
import os
import sys
import time
from typing import Any

import environ
from django.db import DatabaseError

from config.sqlserver import sql_server

#: A server that has not come up by then will not.
START_S = 180.0


def connected(url: str, *, database: str = "master") -> Any:
    """Connect past Django, to a database that is there on every server."""
    import mssql_python  # type: ignore[import-not-found, unused-ignore]

    fields = sql_server(dict(environ.Env.db_url_config(url)))
    words = {
        "SERVER": f"{fields['HOST']},{fields['PORT'] or 1433}",
        "UID": fields["USER"],
        "PWD": "{" + fields["PASSWORD"].replace("}", "}}") + "}",
        "DATABASE": database,
    }
    text = ";".join(f"{word}={value}" for word, value in words.items())
    return mssql_python.connect(f"{text};{fields['OPTIONS'].get('extra_params', '')}", autocommit=True)


def create_in_turn() -> None:
    """
    Let several processes create their test databases at once.

    Each CREATE DATABASE wants the database ``model`` for itself, and fails with error 1807 when another one has it.
    """
    creation = importlib.import_module("mssql.creation").DatabaseCreation
    create = creation._execute_create_test_db

    def repeated(*args: Any, **kwargs: Any) -> Any:
        deadline = time.monotonic() + START_S
        while True:
            try:
                return create(*args, **kwargs)
            except DatabaseError as error:
                if "exclusive lock on database 'model'" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(1)

    creation._execute_create_test_db = repeated


def wait(url: str) -> Any:
    """Return a connection as soon as the server gives one."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return connected(url)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def main() -> int:
    """Make the server ready."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read-committed-snapshot", choices=["ON", "OFF"], default="OFF")
    options = parser.parse_args()
    url = os.environ["KWIT_TEST_MSSQL_URL"]
    name = environ.Env.db_url_config(url)["NAME"]
    with contextlib.closing(wait(url)) as connection:
        cursor = connection.cursor()
        how = f"{options.read_committed_snapshot} WITH ROLLBACK IMMEDIATE"
        cursor.execute(f"ALTER DATABASE model SET READ_COMMITTED_SNAPSHOT {how}")
        cursor.execute(f"IF DB_ID(N'{name}') IS NULL CREATE DATABASE [{name}]")
        cursor.execute("SELECT @@VERSION")
        print(cursor.fetchone()[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
