"""
The reference project's settings; the only reader of the environment.

Each variable stands in ``.env.example`` with its meaning. A secret has no default outside ``DEBUG``.
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import environ
from django.core.exceptions import ImproperlyConfigured

from .environment import Environment
from .sqlserver import MSSQL_PYTHON, import_without_odbc_manager, sql_server

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = BASE_DIR / "var"

env = Environment()
if (BASE_DIR / ".env").is_file():
    env.read_env(BASE_DIR / ".env")


def lock_parameters(text: str) -> list[str | list[str]]:
    """Read ``username+ip_address`` for both together, a comma for either."""
    parts = [part.strip().split("+") for part in text.split(",")]
    if unknown := {name for part in parts for name in part} - {"username", "ip_address"}:
        raise ImproperlyConfigured(f"{text!r} counts by {sorted(unknown)}; known are username and ip_address")
    return [part[0] if len(part) == 1 else part for part in parts]


def proxy_header(text: str) -> tuple[str, str]:
    """Read ``X-Forwarded-Proto: https``, the header by which the proxy says that the client came over HTTPS."""
    name, separator, value = (part.strip() for part in text.partition(":"))
    if not (separator and name and value):
        raise ImproperlyConfigured(f"{text!r} is not a header with a value; write 'X-Forwarded-Proto: https'")
    return "HTTP_" + name.upper().replace("-", "_"), value


DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="only-for-trying-kwit-out" if DEBUG else environ.Env.NOTSET)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"] if DEBUG else [])

INSTALLED_APPS = [
    # Before the admin: it puts the dashboard on the admin's first page.
    "kwit",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "axes",
    "notify",
    "receipts",
    "portal",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "kwit.middleware.StrictPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    # Last: it turns the answer to somebody who is locked out into the page that says so.
    "axes.middleware.AxesMiddleware",
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


def is_read_only(name: str) -> bool:
    """Whether a SQLite database is there and cannot be written: a copy that somebody looks at."""
    return name != ":memory:" and Path(name).is_file() and not os.access(name, os.W_OK)


def read_only(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return how to open a file that cannot be written: without a pragma or a transaction that would write."""
    path = path.resolve()
    # SQLite reads a file in WAL mode by way of one beside it. Where it can make none, nothing can be written there by
    # anybody else either, unless what was written last still waits in a WAL.
    wal = path.with_name(f"{path.name}-wal")
    is_frozen = not os.access(path.parent, os.W_OK) and not (wal.is_file() and wal.stat().st_size)
    kept = {name: value for name, value in options.items() if name not in ("init_command", "transaction_mode")}
    return {"NAME": f"{path.as_uri()}?{'immutable=1' if is_frozen else 'mode=ro'}", "OPTIONS": kept}


def promising(parsed: dict[str, Any], *, variable: str = "DATABASE_URL") -> dict[str, Any]:
    """Give a database the options that Kwit's promises rest on. Raises: ImproperlyConfigured, for a folder."""
    if parsed["ENGINE"] == "django.db.backends.sqlite3":
        parsed["OPTIONS"] = {**SQLITE_OPTIONS, **parsed.get("OPTIONS", {})}
        if is_read_only(parsed["NAME"]):
            parsed |= read_only(Path(parsed["NAME"]), parsed["OPTIONS"])
        elif parsed["NAME"] != ":memory:":
            folder = Path(parsed["NAME"]).parent
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ImproperlyConfigured(f"{variable}: no folder {folder} can be made: {error.strerror}") from error
    if parsed["ENGINE"] == "mssql":
        parsed = sql_server(parsed)
        if parsed["OPTIONS"]["python_driver"] == MSSQL_PYTHON:
            import_without_odbc_manager()
    return parsed


DATABASES = {"default": promising(env.database("DATABASE_URL", default=f"sqlite:///{VAR_DIR / 'kwit.sqlite3'}") or {})}
for alias in ("notify", "receipts"):
    if found := env.database(f"{alias.upper()}_DATABASE_URL", default=""):
        DATABASES[alias] = promising(found, variable=f"{alias.upper()}_DATABASE_URL")
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
    "EXPECT_EVERY": env.duration("NOTIFY_EXPECT_EVERY", default="00:00:00") or None,
    "PING_URL": env.str("NOTIFY_PING_URL", default=""),
    "TRANSPORT": env.str("NOTIFY_TRANSPORT", default="auto"),
    "MAILER": env.str("NOTIFY_MAILER", default="default"),
    "FROM_EMAIL": env.str("NOTIFY_FROM_EMAIL", default=""),
    "MESSAGE_ID_DOMAIN": env.str("NOTIFY_MESSAGE_ID_DOMAIN", default=""),
    "SITE_URL": env.str("NOTIFY_SITE_URL", default=""),
    "ATTACHMENT_BYTES": env.int("NOTIFY_ATTACHMENT_BYTES", default=10 * 2**20),
    "UNSUBSCRIBE": env.str("NOTIFY_UNSUBSCRIBE", default=""),
    "SMTP_ALLOW_CLEAR_AUTH": env.bool("NOTIFY_SMTP_ALLOW_CLEAR_AUTH", default=False),
    "ATTEMPTS_MAX": env.int("NOTIFY_ATTEMPTS_MAX", default=12),
    "RETRY_BASE": env.duration("NOTIFY_RETRY_BASE", default="00:01:00"),
    "RETRY_MAX": env.duration("NOTIFY_RETRY_MAX", default="04:00:00"),
    "RECIPIENTS_MAX": env.int("NOTIFY_RECIPIENTS_MAX", default=100),
    "LEASE": env.duration("NOTIFY_LEASE", default="00:05:00"),
    "LANES": env.int("NOTIFY_LANES", default=8),
    "CONNECTION_MAILS": env.int("NOTIFY_CONNECTION_MAILS", default=100),
    "RATE": env.float("NOTIFY_RATE", default=None),
    "DIGEST_BYTES": env.int("NOTIFY_DIGEST_BYTES", default=5_000_000),
    "CLAIM_BATCH": env.int("NOTIFY_CLAIM_BATCH", default=50),
    "ON_UNCERTAIN": env.str("NOTIFY_ON_UNCERTAIN", default="hold"),
    "PAUSE": env.duration("NOTIFY_PAUSE", default="00:01:00"),
    "PAUSE_MAX": env.duration("NOTIFY_PAUSE_MAX", default="01:00:00"),
    "SUPPRESS_REFUSED": env.bool("NOTIFY_SUPPRESS_REFUSED", default=False),
    "SUPPRESS_BOUNCED": env.bool("NOTIFY_SUPPRESS_BOUNCED", default=False),
    "SUPPRESS_COMPLAINED": env.bool("NOTIFY_SUPPRESS_COMPLAINED", default=False),
    "BOUNCE_ADDRESS": env.str("NOTIFY_BOUNCE_ADDRESS", default=""),
    "UNSUBSCRIBE_LINKS": env.bool("NOTIFY_UNSUBSCRIBE_LINKS", default=False),
    "MAIL_RETENTION_DAYS": env.int("NOTIFY_MAIL_RETENTION_DAYS", default=0) or None,
    "MAIL_PRUNE_BATCH": env.int("NOTIFY_MAIL_PRUNE_BATCH", default=1000),
    "DIGEST": env.duration("NOTIFY_DIGEST", default="00:15:00"),
    "QUIET_HOURS": env.str("NOTIFY_QUIET_HOURS", default=""),
    "SINK": env.str("NOTIFY_SINK", default=""),
    "EPOCH_FILE": env.str("NOTIFY_EPOCH_FILE", default=""),
    "HANDOVER_LEASE": env.duration("NOTIFY_HANDOVER_LEASE", default="00:15:00"),
}
RECEIPTS = {
    "MAX_TARGETS": env.int("RECEIPTS_MAX_TARGETS", default=10000),
    "PLAN_EXPIRES": env.int("RECEIPTS_PLAN_EXPIRES", default=0),
    "LOG_ORIGIN": env.str("RECEIPTS_LOG_ORIGIN", default=""),
    "LOG_KEY_FILE": env.str("RECEIPTS_LOG_KEY_FILE", default=""),
    "LOG_KEYS": env.str("RECEIPTS_LOG_KEYS", default=""),
    "LOG_PUBLISH": env.str("RECEIPTS_LOG_PUBLISH", default=""),
    "LOG_WITNESSES": env.str("RECEIPTS_LOG_WITNESSES", default=""),
}
KWIT: dict[str, Any] = {
    # The reference project has no pages but Kwit's and Django's admin.
    "STRICT_SITE": True,
    "TOKEN_DAYS": env.int("KWIT_TOKEN_DAYS", default=365),
    # What the ready-made groups of ``manage.py kwit_groups`` may see of the sample business.
    "GROUPS": {"viewer": ["portal.view_order", "portal.view_orderline"]},
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

AUTHENTICATION_BACKENDS = [
    # First: whoever is locked out gets no further.
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
#: Proxies of ours in front of the site, each of which appends to X-Forwarded-For.
PROXY_COUNT = env.int("PROXY_COUNT", default=0)
AXES_FAILURE_LIMIT = env.int("SIGN_IN_FAILURES_MAX", default=5)
AXES_COOLOFF_TIME = env.duration("SIGN_IN_COOL_OFF", default="00:15:00")
AXES_LOCKOUT_PARAMETERS = lock_parameters(env.str("SIGN_IN_LOCK_BY", default="username+ip_address"))
AXES_CLIENT_IP_CALLABLE = "config.signing_in.client_address"
AXES_USERNAME_CALLABLE = "config.signing_in.client_name"
AXES_LOCKOUT_CALLABLE = "config.signing_in.locked_out"
AXES_RESET_ON_SUCCESS = True
# Its pages count whole tables and know no tenants; its commands say the same.
AXES_ENABLE_ADMIN = False
# The page says how long it takes; an attempt in the meantime must not make that untrue.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_SENSITIVE_PARAMETERS = ["username", "login", "password", "ip_address", "code"]

# What counts attempts to guess a code is kept here; with several processes it must be one for all.
CACHES = {"default": env.cache_url_config(env.str("CACHE_URL", default="locmemcache://"))}

# Where somebody lands who signs in without, or with a refused, "next".
LOGIN_URL, LOGIN_REDIRECT_URL = "admin:login", "admin:index"
#: Second factor and single sign-on, with django-allauth (requirements/accounts.txt); not imported when off.
ACCOUNTS = env.bool("ACCOUNTS", default=False)
OIDC_SERVER_URL = env.str("OIDC_SERVER_URL", default="")
if ACCOUNTS:
    INSTALLED_APPS += [
        "allauth",
        "allauth.account",
        "allauth.mfa",
        "allauth.socialaccount",
        "allauth.socialaccount.providers.openid_connect",
    ]
    MIDDLEWARE[-1:-1] = ["allauth.account.middleware.AccountMiddleware", "config.accounts.ProviderTroubleMiddleware"]
    AUTHENTICATION_BACKENDS[-1] = "allauth.account.auth_backends.AuthenticationBackend"
    LOGIN_URL, LOGOUT_REDIRECT_URL = "account_login", "account_login"
    ACCOUNT_ADAPTER, SOCIALACCOUNT_ADAPTER = "config.accounts.AccountAdapter", "config.accounts.SocialAdapter"
    ACCOUNT_LOGIN_METHODS = {"username"}
    ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
    # Addresses of one's own, and a new password by mail to a verified one of them (docs/signing-in.md).
    ACCOUNTS_MAIL = env.bool("ACCOUNTS_MAIL", default=False)
    ACCOUNT_FORMS = {"reset_password": "config.accounts.ResetPasswordForm"}
    ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
    ACCOUNT_EMAIL_NOTIFICATIONS = ACCOUNTS_MAIL
    # Whoever finds an open session changes nothing by which its account is entered.
    ACCOUNT_REAUTHENTICATION_REQUIRED = True
    ACCOUNT_REAUTHENTICATION_METHODS = ("password", "mfa")
    # Sign-in needs no address; nobody signs up, so that an unverified one is no reason to refuse a second factor.
    ACCOUNT_EMAIL_VERIFICATION = "none"
    MFA_ALLOW_UNVERIFIED_EMAIL = True
    ACCOUNT_UNIQUE_EMAIL = False
    ACCOUNT_SESSION_REMEMBER = False
    ACCOUNT_DEFAULT_HTTP_PROTOCOL = "http" if DEBUG else "https"
    MFA_TOTP_ISSUER = env.str("TOTP_ISSUER", default="Kwit")
    MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
    if OIDC_SERVER_URL:
        SOCIALACCOUNT_PROVIDERS = {
            "openid_connect": {
                "OAUTH_PKCE_ENABLED": True,
                "APPS": [
                    {
                        "provider_id": "sso",
                        "name": env.str("OIDC_NAME", default="Single sign-on"),
                        "client_id": env.str("OIDC_CLIENT_ID"),
                        "secret": env.str("OIDC_CLIENT_SECRET"),
                        "settings": {"server_url": OIDC_SERVER_URL},
                    }
                ],
            }
        }
        # The form that leads to the provider is followed by a redirect, which a browser counts as the form's target.
        KWIT["FORM_TARGETS"] = ["{0.scheme}://{0.netloc}".format(urlsplit(OIDC_SERVER_URL))]

SESSION_COOKIE_AGE = int(env.duration("SESSION_AGE", default="12:00:00").total_seconds())
SECURE_REFERRER_POLICY = "same-origin"

USE_TZ = True
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
#: The sample portal tells of each comment of a line, not only of the newest (docs/own-step.md).
PORTAL_EACH_COMMENT = env.bool("PORTAL_EACH_COMMENT", default=False)
LANGUAGE_CODE = env.str("LANGUAGE_CODE", default="en")
LANGUAGES = [("en", "English"), ("pl", "Polski"), ("ja", "日本語")]
LOCALE_PATHS = [BASE_DIR / "locale"]

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = env.str("STATIC_ROOT", default=str(VAR_DIR / "static"))
if env.bool("STATIC_BY_APP", default=False):
    # The application server sends static files itself (requirements/production.txt), after manage.py collectstatic.
    MIDDLEWARE.insert(1, "whitenoise.middleware.WhiteNoiseMiddleware")
    STORAGES = {
        "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
        "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
    }

if not DEBUG:
    SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=True)
    # An orchestrator's probe speaks plain HTTP to the container itself.
    SECURE_REDIRECT_EXEMPT = [r"^healthz(/|$)"]
    SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=31_536_000)
    SECURE_HSTS_INCLUDE_SUBDOMAINS = env.bool("SECURE_HSTS_INCLUDE_SUBDOMAINS", default=True)
    SECURE_HSTS_PRELOAD = env.bool("SECURE_HSTS_PRELOAD", default=True)
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.bool("SECURE_COOKIES", default=True)
if header := env.str("SECURE_PROXY_SSL_HEADER", default=""):
    SECURE_PROXY_SSL_HEADER = proxy_header(header)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("LOG_LEVEL", default="WARNING")},
}
