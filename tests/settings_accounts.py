"""The test settings with accounts on, and single sign-on at a provider that ``tests/accounts/provider.py`` is."""

import os

os.environ |= {
    "ACCOUNTS": "1",
    "OIDC_SERVER_URL": "http://127.0.0.1:1",
    "OIDC_CLIENT_ID": "kwit",
    "OIDC_CLIENT_SECRET": "only-for-tests",
}

from tests.settings import *  # noqa: F403

for _database in DATABASES.values():  # noqa: F405
    # Beside the database of the suite that starts this one.
    _name = str(_database.get("TEST", {}).get("NAME") or f"test_{_database['NAME']}")
    _database["TEST"] = {"NAME": _name.replace(".test.sqlite3", ".accounts.sqlite3")}
    if "sqlite3" not in _database["ENGINE"]:
        _database["TEST"]["NAME"] = f"accounts_{_name}"
