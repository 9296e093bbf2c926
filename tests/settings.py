"""The reference settings, made fit for tests; the database comes from ``DATABASE_URL`` as everywhere."""

import os

os.environ.setdefault("DEBUG", "1")
os.environ.setdefault("EMAIL_URL", "memorymail://")

from config.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

for _database in DATABASES.values():  # noqa: F405
    if "sqlite3" in _database["ENGINE"]:
        # A file, because that is what sites have: memory knows neither WAL nor a second process.
        # Processes die in tests, the machine does not: what was handed to the operating system need not reach the disk.
        _options = _database["OPTIONS"]
        _options["init_command"] = _options["init_command"].replace("synchronous=FULL", "synchronous=OFF")
        _database["TEST"] = {"NAME": str(_database["NAME"]).removesuffix(".sqlite3") + ".test.sqlite3"}

if any(_database["ENGINE"] == "mssql" for _database in DATABASES.values()):  # noqa: F405
    from tests.babelfish import watch_for_it
    from tests.mssql_server import create_in_turn

    watch_for_it()
    create_in_turn()

# The models of docs/own-step.md.
INSTALLED_APPS = [*INSTALLED_APPS, "tests.shop"]  # noqa: F405
