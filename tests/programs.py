"""Programs that some tests want to be real: a browser, a broker, a pooler."""

import os
import shutil


def find_program(*names: str) -> str | None:
    """
    Return the path of the first of these that is installed; None when none is, and the test may be skipped.

    Raises: LookupError where ``KWIT_TEST_ALL`` is set: what checks a submission leaves nothing out.
    """
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    found = next(filter(None, (shutil.which(name, path=path) for name in names)), None)
    if found is None and os.environ.get("KWIT_TEST_ALL"):
        raise LookupError(f"KWIT_TEST_ALL is set, and there is no {' and no '.join(names)}")
    return found
