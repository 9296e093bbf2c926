"""
The reference project's settings; the only reader of the environment.

Each variable stands in ``.env.example`` with its meaning. A secret has no default outside ``DEBUG``.
"""

from pathlib import Path
from typing import Any

import django
import environ

from .environment import Environment
from .sqlserver import MSSQL_PYTHON, import_without_odbc_manager, sql_server

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = BASE_DIR / "var"

env = Environment()
if (BASE_DIR / ".env").is_file():
    env.read_env(BASE_DIR / ".env")


DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="only-for-trying-kwit-out" if DEBUG else environ.Env.NOTSET)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"] if DEBUG else [])

INSTALLED_APPS = [
    # Before the admin: it puts the dashboard on the admin's first page.
    "desk",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "notify",
    "receipts",
    "portal",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "desk.middleware.StrictPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
ASGI_APPLICATION = "config.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

SQLITE_OPTIONS = {
    # IMMEDIATE: a transaction that will write says so when it begins, so that it waits for its turn (busy timeout)
    # instead of failing half-way with "database is locked". WAL: readers do not wait for the writer.
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
}


def promising(parsed: dict[str, Any]) -> dict[str, Any]:
    """Give a database the options that Kwit's promises rest on."""
    if parsed["ENGINE"] == "django.db.backends.sqlite3":
        parsed["OPTIONS"] = {**SQLITE_OPTIONS, **parsed.get("OPTIONS", {})}
        if parsed["NAME"] != ":memory:":
            Path(parsed["NAME"]).parent.mkdir(parents=True, exist_ok=True)
    if parsed["ENGINE"] == "mssql":
        parsed = sql_server(parsed)
        if parsed["OPTIONS"]["python_driver"] == MSSQL_PYTHON:
            import_without_odbc_manager()
    return parsed


DATABASES = {"default": promising(env.database("DATABASE_URL", default=f"sqlite:///{VAR_DIR / 'kwit.sqlite3'}") or {})}
for alias in ("notify", "receipts"):
    if found := env.database(f"{alias.upper()}_DATABASE_URL", default=""):
        DATABASES[alias] = promising(found)
# SQL Server: a pooled connection keeps the pass lock of whoever had it before until it is used again.
DATABASE_CONNECTION_POOLING = False
DATABASE_ROUTERS = ["config.routers.EngineRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

NOTIFY = {
    "LOG_RETENTION_DAYS": env.int("NOTIFY_LOG_RETENTION_DAYS", default=60),
    "LOG_PRUNE_BATCH": env.int("NOTIFY_LOG_PRUNE_BATCH", default=5000),
    "BREAKER": env.int("NOTIFY_BREAKER", default=500),
    "MARK_BATCH": env.int("NOTIFY_MARK_BATCH", default=2000),
    "LOOKBACK": env.duration("NOTIFY_LOOKBACK", default="1 day"),
    "FULL_EVERY": env.duration("NOTIFY_FULL_EVERY", default="1 day"),
    "NOT_BEFORE": env.moment("NOTIFY_NOT_BEFORE"),
    "TRANSPORT": env.str("NOTIFY_TRANSPORT", default="auto"),
    "MAILER": env.str("NOTIFY_MAILER", default="default"),
    "FROM_EMAIL": env.str("NOTIFY_FROM_EMAIL", default=""),
    "MESSAGE_ID_DOMAIN": env.str("NOTIFY_MESSAGE_ID_DOMAIN", default=""),
    "UNSUBSCRIBE": env.str("NOTIFY_UNSUBSCRIBE", default=""),
    "ATTEMPTS_MAX": env.int("NOTIFY_ATTEMPTS_MAX", default=12),
    "RETRY_BASE": env.duration("NOTIFY_RETRY_BASE", default="00:01:00"),
    "RETRY_MAX": env.duration("NOTIFY_RETRY_MAX", default="04:00:00"),
    "RECIPIENTS_MAX": env.int("NOTIFY_RECIPIENTS_MAX", default=100),
    "LEASE": env.duration("NOTIFY_LEASE", default="00:05:00"),
    "CLAIM_BATCH": env.int("NOTIFY_CLAIM_BATCH", default=50),
    "ON_UNCERTAIN": env.str("NOTIFY_ON_UNCERTAIN", default="hold"),
    "PAUSE": env.duration("NOTIFY_PAUSE", default="00:01:00"),
    "PAUSE_MAX": env.duration("NOTIFY_PAUSE_MAX", default="01:00:00"),
    "SUPPRESS_REFUSED": env.bool("NOTIFY_SUPPRESS_REFUSED", default=False),
    "DIGEST": env.duration("NOTIFY_DIGEST", default="00:15:00"),
    "QUIET_HOURS": env.str("NOTIFY_QUIET_HOURS", default=""),
    "SINK": env.str("NOTIFY_SINK", default=""),
    "HANDOVER_LEASE": env.duration("NOTIFY_HANDOVER_LEASE", default="00:15:00"),
}
RECEIPTS = {
    "MAX_TARGETS": env.int("RECEIPTS_MAX_TARGETS", default=10000),
}
DESK = {
    "METRICS_TOKEN": env.str("METRICS_TOKEN", default=""),
    "METRICS_OPEN": env.bool("METRICS_OPEN", default=False),
}


def mail(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an EMAIL_URL: MAILERS on Django 6.1, which warns of the EMAIL_… names that 5.2 has."""
    given = {name: value for name, value in config.items() if name.startswith("EMAIL_") and value not in (None, "")}
    if django.VERSION < (6, 1):
        return given
    renamed = {"EMAIL_HOST_USER": "username", "EMAIL_HOST_PASSWORD": "password"}
    backend = given.pop("EMAIL_BACKEND")
    options = {renamed.get(name, name.removeprefix("EMAIL_").lower()): value for name, value in given.items()}
    return {"MAILERS": {"default": {"BACKEND": backend, "OPTIONS": options}}}


vars().update(mail(env.email_url("EMAIL_URL", default="consolemail://")))

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

USE_TZ = True
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
LANGUAGE_CODE = env.str("LANGUAGE_CODE", default="en")
LANGUAGES = [("en", "English"), ("pl", "Polski"), ("ja", "日本語")]
LOCALE_PATHS = [BASE_DIR / "locale"]

STATIC_URL = "static/"
STATIC_ROOT = VAR_DIR / "static"

if not DEBUG:
    SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=True)
    # An orchestrator's probe speaks plain HTTP to the container itself.
    SECURE_REDIRECT_EXEMPT = [r"^healthz(/|$)"]
    SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=31_536_000)
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("LOG_LEVEL", default="WARNING")},
}
