"""Run ``manage.py check --deploy`` on the settings a production site would have; exit 1 on any finding."""

import os
import secrets
import subprocess
import sys

#: What a site may have on: nothing, accounts, and accounts behind a proxy with single sign-on.
SITES: tuple[dict[str, str], ...] = (
    {"ACCOUNTS": "0"},
    {"ACCOUNTS": "1"},
    {
        "ACCOUNTS": "1",
        "PROXY_COUNT": "1",
        "SECURE_PROXY_SSL_HEADER": "X-Forwarded-Proto: https",
        "OIDC_SERVER_URL": "https://login.example.org",
        "OIDC_CLIENT_ID": "kwit",
        "OIDC_CLIENT_SECRET": secrets.token_urlsafe(16),
    },
)
COMMAND = ("manage.py", "check", "--deploy", "--fail-level", "WARNING")


def main() -> int:
    """Check each kind of site in a process of its own, as settings are read once."""
    common = {"DJANGO_SETTINGS_MODULE": "config.settings", "DEBUG": "0", "ALLOWED_HOSTS": "kwit.example.org"}
    codes = []
    for site in SITES:
        environment = {**os.environ, **common, "SECRET_KEY": secrets.token_urlsafe(64), **site}
        codes.append(subprocess.run([sys.executable, *COMMAND], env=environment, check=False).returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
