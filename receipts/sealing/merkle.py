"""
The Merkle tree of RFC 6962, section 2.1 (the same hashing as RFC 9162): leaves, roots, and both proofs. Pure.

A node is the root of a complete subtree: ``(level, place)`` covers the leaves ``place * 2**level`` up to, not
including, ``(place + 1) * 2**level``. Everything here is computed from the hashes of such nodes, so that a proof reads
O(log n) of them, whatever the size of the tree.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Node(NamedTuple):
    """The root of one complete subtree."""

    level: int
    place: int

    @property
    def last_leaf(self) -> int:
        """The leaf that completes the subtree."""
        return ((self.place + 1) << self.level) - 1


ReadNodes = Callable[[list[Node]], dict[Node, bytes]]

EMPTY_ROOT = hashlib.sha256().digest()


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of one entry: MTH({entry})."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def peaks_of(size: int) -> list[Node]:
    """Return the complete subtrees that make a tree of this size, the largest first: one per bit that is set."""
    peaks, start = [], 0
    for level in range(size.bit_length() - 1, -1, -1):
        if size >> level & 1:
            peaks.append(Node(level, start >> level))
            start += 1 << level
    return peaks


class Tree:
    """A tree that grows by one leaf at a time; it keeps its peaks only, so memory does not grow with it."""

    def __init__(self, size: int = 0, peaks: list[bytes] | None = None) -> None:
        self.size, self.peaks = size, list(peaks or [])

    def append(self, leaf: bytes) -> list[bytes]:
        """Add a leaf hash; return the hashes of the subtrees that it completes, from its own level upwards."""
        completed = [leaf]
        for level in range(self.size.bit_length() + 1):
            if not self.size >> level & 1:
                break
            completed.append(node_hash(self.peaks.pop(), completed[-1]))
        self.peaks.append(completed[-1])
        self.size += 1
        return completed

    @property
    def root(self) -> bytes:
        """The root hash."""
        return fold(self.peaks)


def fold(peaks: list[bytes]) -> bytes:
    """Return the root over peaks, the largest first."""
    if not peaks:
        return EMPTY_ROOT
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root


# A proof consists of the roots of ranges of leaves. A range that begins at a multiple of a power of two no smaller than
# itself is folded from its own peaks.


def range_nodes(start: int, end: int) -> list[Node]:
    """Return the complete subtrees that make the leaves from ``start`` up to ``end``, the largest first."""
    return [Node(level, (start >> level) + place) for level, place in peaks_of(end - start)]


def split(size: int) -> int:
    """Return the largest power of two below a size of 2 or more."""
    return 1 << (size - 1).bit_length() - 1


def inclusion_ranges(index: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges whose roots prove that a leaf is in a tree, from the leaf upwards (RFC 6962, 2.1.1)."""
    path, start, end = [], 0, size
    while end - start > 1:
        middle = start + split(end - start)
        if index < middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((start, middle))
            start = middle
    yield from reversed(path)


def consistency_ranges(old: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges whose roots prove that a tree begins with an older one (RFC 6962, 2.1.2)."""
    if not 0 < old < size:
        return
    path, start, end = [], 0, size
    while old != end:
        middle = start + split(end - start)
        if old <= middle:
            path.append((middle, end))
            end = middle
        else:
            path.append((start, middle))
            start = middle
    # What is left is a complete subtree of both trees; where it is the whole older tree, its root is known.
    if start:
        path.append((start, end))
    yield from reversed(path)


def prove(ranges: Iterator[tuple[int, int]], read: ReadNodes) -> list[bytes]:
    """Return the roots of these ranges; the nodes are read in one call."""
    wanted = [range_nodes(*one) for one in ranges]
    found = read([node for nodes in wanted for node in nodes])
    return [fold([found[node] for node in nodes]) for nodes in wanted]


def inclusion_proof(index: int, size: int, read: ReadNodes) -> list[bytes]:
    """Return the proof that the leaf at an index is in the tree of a size."""
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    return prove(inclusion_ranges(index, size), read)


def consistency_proof(old: int, size: int, read: ReadNodes) -> list[bytes]:
    """Return the proof that the tree of a size begins with the tree of an older size."""
    if not 0 <= old <= size:
        raise ValueError(f"a tree of {size} leaves has no older state of {old}")
    return prove(consistency_ranges(old, size), read)
