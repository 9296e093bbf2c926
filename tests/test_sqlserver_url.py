"""What becomes of a SQL Server URL, and that nothing but pip is needed for it."""

import importlib.util
import os
import subprocess
import sys

import environ
import pytest
from django.core.exceptions import ImproperlyConfigured

from config.sqlserver import sql_server
from tests.crashing import ROOT


def parsed(query=""):
    return sql_server(environ.Env.db_url_config(f"mssql://kwit:p%40;ss@db.example.org:1433/kwit{query}"))


def test_a_plain_url_takes_the_driver_that_pip_brings_and_its_encryption():
    fields = parsed()

    assert (fields["ENGINE"], fields["HOST"], fields["PORT"], fields["NAME"]) == (
        "mssql",
        "db.example.org",
        "1433",
        "kwit",
    )
    assert (fields["USER"], fields["PASSWORD"]) == ("kwit", "p@;ss")
    assert fields["OPTIONS"] == {"python_driver": "mssql_python"}


def test_options_become_keywords_of_the_connection():
    fields = parsed("?encrypt=strict&trust_server_certificate=yes&query_timeout=30")

    assert fields["OPTIONS"] == {
        "python_driver": "mssql_python",
        "query_timeout": 30,
        "extra_params": "Encrypt=strict;TrustServerCertificate=yes",
    }


def test_a_value_cannot_bring_another_keyword_along():
    assert parsed("?server_certificate=a%3BPWD%3Db%7D")["OPTIONS"]["extra_params"] == "ServerCertificate={a;PWD=b}}}"


def test_an_option_that_nobody_would_read_is_refused_by_name():
    with pytest.raises(ImproperlyConfigured, match=r"unknown options \['trustservercertificate'\]"):
        parsed("?trustservercertificate=yes")


def test_django_loads_its_backend_without_pyodbc_and_without_an_odbc_manager():
    if importlib.util.find_spec("mssql") is None:
        pytest.skip("requirements/mssql.txt is not installed here")
    without_pyodbc = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pyodbc': raise ImportError('libodbc.so.2: cannot open shared object file')\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import django\n"
        "django.setup()\n"
        "from django.db import connection\n"
        "print(connection.vendor, connection.ops.quote_name('kind'))\n"
    )
    environment = os.environ | {
        "DATABASE_URL": "mssql://kwit:secret@127.0.0.1:1433/kwit",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DEBUG": "1",
    }

    done = subprocess.run(
        [sys.executable, "-c", without_pyodbc],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout == "microsoft [kind]\n", done.stderr
