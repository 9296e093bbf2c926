"""The engine's error tree."""


class NotifyError(Exception):
    """Base of everything that notify raises on purpose."""


class UnknownStep(NotifyError):
    """A step was asked for that no ``notifications.py`` has registered."""


class LockLost(NotifyError):
    """The pass lock is not ours any more; nothing was written since it was last seen."""


class LockUnusable(NotifyError):
    """The database cannot hold a session lock on this connection, for example behind a transaction pooler."""


class WrongAddress(NotifyError):
    """What was given as recipients holds something that is nobody's address."""
