"""Tokens: made once and shown once, found by their hash, revoked but never deleted."""

import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from hashlib import sha256

from django.contrib.auth.models import AbstractBaseUser
from django.db import DatabaseError, IntegrityError, router, transaction
from django.db.models import Q
from django.views.decorators.debug import sensitive_variables

from ..models import Token

#: What each begins with, so that scanners of repositories and logs can find one that has leaked.
MARK = "kwit_"
SECRET_BYTES = 32
#: Characters that are kept and shown; the rest still has more than 200 bits.
SHOWN_CHARS = len(MARK) + 6
#: The time of last use is written at most this often per token.
USE_NOTED_EVERY = timedelta(minutes=1)


class NameTaken(Exception):
    """The user has a token of that name that is not revoked."""


@sensitive_variables()
def make_token(
    user: AbstractBaseUser, *, name: str, expires_at: datetime | None = None, using: str | None = None
) -> tuple[Token, str]:
    """
    Make a token; return its row and the secret, which nothing can show again.

    Transaction: its own, or a savepoint in the caller's.
    Raises: NameTaken.
    """
    secret, alias = MARK + secrets.token_urlsafe(SECRET_BYTES), using or router.db_for_write(Token)
    token = Token(
        user_id=user.pk, name=name, prefix=secret[:SHOWN_CHARS], digest=digest_of(secret), expires_at=expires_at
    )
    try:
        with transaction.atomic(using=alias):
            token.save(force_insert=True, using=alias)
    except IntegrityError as error:
        if not Token.objects.using(alias).filter(user_id=user.pk, name=name, revoked_at__isnull=True).exists():
            raise
        raise NameTaken(name) from error
    return token, secret


@sensitive_variables()
def digest_of(secret: str) -> str:
    """Return what is kept of a secret."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def find_token(digest: str, *, now: datetime) -> Token | None:
    """
    Return the live token of a secret's digest with its user, None when there is none; the use is noted.

    It is sought by the hash: how long that takes says nothing of a secret that is nearly right.
    """
    live = Token.objects.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now), revoked_at__isnull=True)
    token = live.select_related("user").filter(digest=digest).first()
    if token is None or not token.user.is_active:
        return None
    note_use(token, now=now)
    return token


def note_use(token: Token, *, now: datetime) -> None:
    """Write down that a token was used, unless that was done within the last minute."""
    before = now - USE_NOTED_EVERY
    if token.last_used_at is not None and token.last_used_at > before:
        return
    unnoted = Q(last_used_at__isnull=True) | Q(last_used_at__lte=before)
    try:
        with transaction.atomic(using=router.db_for_write(Token)):
            Token.objects.filter(unnoted, pk=token.pk).update(last_used_at=now)
    except DatabaseError:
        pass  # a database that only reads, or is busy, still answers


def revoke_tokens(pks: Collection[int], *, now: datetime, using: str | None = None) -> int:
    """Revoke tokens; return how many were live. Transaction: the caller's."""
    return Token.objects.using(using).filter(pk__in=pks, revoked_at__isnull=True).update(revoked_at=now)
