"""A SQL Server URL -> Django's dict, and the one import that may have to be stood in for."""

import importlib
import sys
from types import ModuleType
from typing import Any

from django.core.exceptions import ImproperlyConfigured

#: Options of the URL that become keywords of the connection string: how the driver spells them.
KEYWORDS = {
    "encrypt": "Encrypt",
    "trust_server_certificate": "TrustServerCertificate",
    "host_name_in_certificate": "HostnameInCertificate",
    "server_certificate": "ServerCertificate",
    "authentication": "Authentication",
    "multi_subnet_failover": "MultiSubnetFailover",
    "application_intent": "ApplicationIntent",
}
#: Options of the URL that are mssql-django's own.
OPTIONS = ("python_driver", "driver", "isolation_level", "query_timeout", "connection_timeout", "connection_retries")
MSSQL_PYTHON = "mssql_python"


def sql_server(parsed: dict[str, Any]) -> dict[str, Any]:
    """
    Give a parsed URL the options that Kwit's promises rest on.

    ``mssql://user:password@host:1433/kwit?encrypt=yes&trust_server_certificate=no``; ``python_driver`` is
    ``mssql_python`` unless the URL says otherwise. Raises: ImproperlyConfigured for an option nobody would read.
    """
    given = {"python_driver": MSSQL_PYTHON, **parsed.get("OPTIONS", {})}
    if unknown := sorted(set(given) - set(KEYWORDS) - set(OPTIONS)):
        raise ImproperlyConfigured(
            f"a SQL Server URL has unknown options {unknown}; known are {sorted([*KEYWORDS, *OPTIONS])}"
        )
    keywords = ";".join(f"{KEYWORDS[name]}={braced(str(given.pop(name)))}" for name in KEYWORDS if name in given)
    return {
        **parsed,
        "PORT": str(parsed.get("PORT") or ""),
        "OPTIONS": {**given, "extra_params": keywords} if keywords else given,
    }


def braced(value: str) -> str:
    """Return a value that cannot end its keyword: MS-ODBCSTR puts such a one in braces."""
    return "{" + value.replace("}", "}}") + "}" if any(character in value for character in ";{}=") else value


def import_without_odbc_manager() -> None:
    """
    Let mssql-django load where pyodbc cannot.

    mssql-django imports pyodbc even for connections that use mssql-python, and the wheel of pyodbc needs ``libodbc2``
    of the operating system. With mssql-python nothing else of pyodbc is ever used than its constants and classes of
    exceptions, which mssql-python has under the same names; so they stand in, and pip alone is enough.
    """
    try:
        importlib.import_module("pyodbc")
    except ImportError as reason:
        if "pyodbc" in sys.modules:
            raise
        try:
            driver = importlib.import_module(MSSQL_PYTHON)
        except ImportError as missing:
            raise ImproperlyConfigured(f"SQL Server needs requirements/mssql.txt: {missing}") from missing
        stand_in = ModuleType("pyodbc", f"Constants and exceptions of mssql-python; pyodbc is not there: {reason}")
        names = [name for name in dir(driver) if name.startswith("SQL_") or name.endswith(("Error", "Warning"))]
        vars(stand_in).update({name: getattr(driver, name) for name in names}, version="5.0.0")
        sys.modules["pyodbc"] = stand_in
