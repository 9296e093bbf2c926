"""
The log as static files (C2SP tlog-tiles): monitors of transparency logs read them, over any web server.

Written are the tree's hashes, the entries (a receipt's digest, nothing of what is in it) and, last, the checkpoint, so
that it never names what is not there yet. A full tile is written once and never again.
"""

import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..models import Leaf
from .log import KEYS_MAX, node_in
from .merkle import Node

#: Hashes of one tile, and the levels of the tree that one level of tiles spans.
WIDTH, TILE_LEVELS = 256, 8
DIGEST_BYTES = 32


def number_path(number: int) -> str:
    """Return a tile's number as a path: 1234067 is ``x001/x234/067``."""
    parts = [f"{number % 1000:03d}"]
    while number >= 1000:
        number //= 1000
        parts.insert(0, f"x{number % 1000:03d}")
    return "/".join(parts)


def tile_levels(size: int) -> Iterator[tuple[int, int]]:
    """Yield each level of tiles with the number of its hashes, for a tree of a size."""
    level = 0
    while count := size >> (TILE_LEVELS * level):
        yield level, count
        level += 1


def export_tiles(folder: Path, *, size: int, alias: str) -> int:
    """Write the tiles and entries of a tree of this size that are not there yet; return how many files."""
    written = 0
    for level, count in tile_levels(size):
        full, rest = divmod(count, WIDTH)
        missing: list[tuple[int, int]] = [(full, rest)] if rest else []
        # Backwards from the newest: what is there was written after all before it.
        for number in range(full - 1, -1, -1):
            if (folder / f"tile/{level}/{number_path(number)}").exists():
                break
            missing.append((number, WIDTH))
        for number, width in reversed(missing):
            suffix = "" if width == WIDTH else f".p/{width}"
            # Entries first: where a tile of hashes is, its entries are.
            if level == 0:
                entries = read_bundle(number * WIDTH, width, alias)
                write(folder / f"tile/entries/{number_path(number)}{suffix}", entries)
                written += 1
            write(folder / f"tile/{level}/{number_path(number)}{suffix}", read_tile(level, number, width, alias))
            written += 1
    return written


def read_tile(level: int, number: int, width: int, alias: str) -> bytes:
    """Return the hashes of one tile."""
    nodes = [Node(TILE_LEVELS * level, number * WIDTH + place) for place in range(width)]
    positions = [node.last_leaf for node in nodes]
    leaves = Leaf.objects.using(alias)
    found = dict(leaves.filter(position__in=positions[:KEYS_MAX]).values_list("position", "hashes"))
    return b"".join(node_in(found[node.last_leaf], node.level) for node in nodes)


def read_bundle(start: int, width: int, alias: str) -> bytes:
    """Return entries as a bundle: each with its length before it."""
    leaves = Leaf.objects.using(alias).filter(position__gte=start, position__lt=start + width).order_by("position")
    digests = [bytes.fromhex(digest) for digest in leaves.values_list("digest", flat=True)]
    return b"".join(struct.pack(">H", len(digest)) + digest for digest in digests)


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: readers never see a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A web server of another user reads it; mkstemp lets the owner only.
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
