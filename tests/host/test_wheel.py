"""The wheel in a project made by ``django-admin startproject``: every feature, and no file of the reference project."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
SETTINGS = """
INSTALLED_APPS = ["kwit", *INSTALLED_APPS, "notify", "receipts", "shop"]
MIDDLEWARE += ["django.middleware.locale.LocaleMiddleware"]
DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}
NOTIFY = {"FROM_EMAIL": "shop@example.org", "SITE_URL": "https://shop.example.org"}
MAIL_FOLDER = str(BASE_DIR / "mails")
import django
if django.VERSION >= (6, 1):
    MAILERS = {"default": {
        "BACKEND": "django.core.mail.backends.filebased.EmailBackend", "OPTIONS": {"file_path": MAIL_FOLDER}
    }}
else:
    EMAIL_BACKEND, EMAIL_FILE_PATH = "django.core.mail.backends.filebased.EmailBackend", MAIL_FOLDER
ALLOWED_HOSTS = ["testserver"]
"""
URLS = """
from django.contrib import admin
from django.urls import include, path
urlpatterns = [path("admin/", admin.site.urls), path("", include("kwit.urls"))]
"""
TEMPLATES = {
    "mail/late.subject.txt": "Parcel {{ number }} of {{ weight }} kg is late",
    "mail/late.body.txt": "{% load notify %}{{ weight }} {{ event_at|date }} {% notify_url 'admin:index' %}",
    "mail/late.body.html": "{% extends 'notify/mail/layout.html' %}{% block message %}{{ number }}{% endblock %}",
    "task/late.title.txt": "Look for {{ number }}",
    "mail/lost.subject.txt": "Parcel {{ number }} is lost",
    "mail/lost.body.txt": "{{ number }} {{ key }}",
    "mail/lost.digest.subject.txt": "OWN LOOK {{ count }}",
    "mail/lost.digest.body.txt": "{% for item in items %}{{ item.text }}{% endfor %}",
}


def call(*words: str, cwd: Path, **environment: str) -> str:
    """Run a program of this interpreter; return what it printed."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=inherited | environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: Any) -> Path:
    """Build the wheel of a clean copy of the sources and lay it out as it is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "kwit", "notify", "receipts", "pyproject.toml", "README.md", "LICENSE"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            target = folder / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    call("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), ".", cwd=folder / "source")
    [wheel] = folder.glob("*.whl")
    call("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder / "site"), str(wheel), cwd=folder)
    return folder / "site"


def test_a_stranger_s_project_has_every_feature(site: Path, tmp_path: Path) -> None:
    project, path = tmp_path / "host", {"PYTHONPATH": str(site)}
    project.mkdir()
    call("-m", "django", "startproject", "stranger", str(project), cwd=tmp_path)
    shop = project / "shop"
    call("manage.py", "startapp", "shop", cwd=project)
    for name in ("models", "notifications", "changes"):
        (shop / f"{name}.py").write_text((HERE / f"shop_{name}.py").read_text())
    with (project / "stranger" / "settings.py").open("a") as settings:
        settings.write(SETTINGS)
    (project / "stranger" / "urls.py").write_text(URLS)
    for name, text in TEMPLATES.items():
        target = shop / "templates" / "notify" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    call("manage.py", "makemigrations", "--verbosity", "0", "shop", cwd=project, **path)
    call("manage.py", "makemigrations", "--check", "--dry-run", cwd=project, **path)
    call("manage.py", "migrate", "--verbosity", "0", cwd=project, **path)
    (project / "drive.py").write_text((HERE / "drive.py").read_text())

    assert "every feature works" in call("drive.py", str(site), cwd=project, **path)
