"""
API tokens: shown once, found by their hash, revoked but never deleted.

A token ends when it is revoked, at its date, after ``KWIT["TOKEN_DAYS"]``, with another password of its user (which
ends the user's sessions, too) and when its user is deactivated.
"""

import hmac
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from hashlib import sha256

from django.contrib.auth.models import AbstractBaseUser
from django.db import DatabaseError, IntegrityError, router, transaction
from django.db.models import Q
from django.views.decorators.debug import sensitive_variables

from ..conf import kwit_settings
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
    Create a token; return its row and the secret, which nothing can show again.

    Transaction: its own, or a savepoint in the caller's.
    Raises: NameTaken.
    """
    secret, alias = MARK + secrets.token_urlsafe(SECRET_BYTES), using or router.db_for_write(Token)
    token = Token(
        user_id=user.pk,
        name=name,
        prefix=secret[:SHOWN_CHARS],
        digest=digest_of(secret),
        password_digest=password_digest(user),
        expires_at=expires_at,
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
    """Return the SHA-256 of a secret."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def password_digest(user: AbstractBaseUser) -> str:
    """Return the SHA-256 of a user's password hash, by which a changed password is noticed."""
    return digest_of(str(user.password))


def find_token(digest: str, *, now: datetime) -> Token | None:
    """
    Return the valid token of a secret's digest with its user, None when there is none; records the use.

    A token whose user is inactive or has another password is revoked here, so that it stays invalid when the user
    becomes active again. The lookup is by hash: its duration says nothing about a secret that is nearly right.
    """
    token = Token.objects.filter(digest=digest, revoked_at__isnull=True).select_related("user").first()
    if token is None:
        return None
    if not is_backed(token):
        revoke_quietly(token, now=now)
        return None
    ends_at = token.ends_at(days_max=kwit_settings().TOKEN_DAYS)
    if ends_at is not None and ends_at <= now:
        return None
    note_use(token, now=now)
    return token


def is_backed(token: Token) -> bool:
    """Whether the token's user is active and has the password with which the token was made."""
    return token.user.is_active and hmac.compare_digest(token.password_digest, password_digest(token.user))


def revoke_quietly(token: Token, *, now: datetime) -> None:
    """Revoke a token; where the database only reads, it is refused each time anyway."""
    try:
        with transaction.atomic(using=router.db_for_write(Token)):
            revoke_tokens([token.pk], now=now)
    except DatabaseError:
        pass


def note_use(token: Token, *, now: datetime) -> None:
    """Record the time of last use, at most once a minute."""
    before = now - USE_NOTED_EVERY
    if token.last_used_at is not None and token.last_used_at > before:
        return
    unnoted = Q(last_used_at__isnull=True) | Q(last_used_at__lte=before)
    try:
        with transaction.atomic(using=router.db_for_write(Token)):
            Token.objects.filter(unnoted, pk=token.pk).update(last_used_at=now)
    except DatabaseError:
        pass  # the answer does not depend on it: the database may be read-only or busy


def revoke_tokens(pks: Collection[int], *, now: datetime, using: str | None = None) -> int:
    """Revoke tokens; return how many were live. Transaction: the caller's."""
    return Token.objects.using(using).filter(pk__in=pks, revoked_at__isnull=True).update(revoked_at=now)


def revoke_tokens_of(user: AbstractBaseUser, *, now: datetime, using: str | None = None) -> int:
    """Revoke all tokens of a user. Transaction: the caller's."""
    return Token.objects.using(using).filter(user_id=user.pk, revoked_at__isnull=True).update(revoked_at=now)
