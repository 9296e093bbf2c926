"""
A second verifier of sealed receipts, written from the text of RFC 6962, RFC 8032 and the C2SP documents alone.

It shares no code with ``receipts/verify.py`` or ``receipts/sealing``: the tree is recursive as RFC 6962 defines it, and
Ed25519 is plain arithmetic as in RFC 8032, section 5.1.
"""

import base64
import hashlib
import json

# RFC 8032, section 5.1: the curve, with points in extended coordinates.
P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)


def plus(one, other):
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c = 2 * one[3] * other[3] * D % P
    d = 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(number, point):
    result = (0, 1, 1, 0)
    while number:
        if number & 1:
            result = plus(result, point)
        point, number = plus(point, point), number >> 1
    return result


def recover_x(y, sign):
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    return x if x & 1 == sign else P - x


def point_of(data):
    number = int.from_bytes(data, "little")
    y, sign = number & ((1 << 255) - 1), number >> 255
    x = recover_x(y, sign) if y < P else None
    return None if x is None else (x, y, 1, x * y % P)


BASE_Y = 4 * pow(5, -1, P) % P
BASE = (recover_x(BASE_Y, 0), BASE_Y, 1, recover_x(BASE_Y, 0) * BASE_Y % P)


def is_signature(public, message, signature):
    """RFC 8032, 5.1.7."""
    if len(public) != 32 or len(signature) != 64:
        return False
    a, r, s = point_of(public), point_of(signature[:32]), int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= ORDER:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % ORDER
    left, right = times(s, BASE), plus(r, times(k, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


# RFC 6962, section 2.1.


def largest_power_below(n):
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def mth(entries):
    """2.1: the Merkle Tree Hash of a list of entries."""
    if not entries:
        return hashlib.sha256(b"").digest()
    if len(entries) == 1:
        return hashlib.sha256(b"\x00" + entries[0]).digest()
    k = largest_power_below(len(entries))
    return hashlib.sha256(b"\x01" + mth(entries[:k]) + mth(entries[k:])).digest()


def path(m, entries):
    """2.1.1: the audit path of entry m."""
    if len(entries) == 1:
        return []
    k = largest_power_below(len(entries))
    if m < k:
        return [*path(m, entries[:k]), mth(entries[k:])]
    return [*path(m - k, entries[k:]), mth(entries[:k])]


def proof(m, entries):
    """2.1.2: the consistency proof of the first m entries."""
    return subproof(m, entries, True)


def subproof(m, entries, is_known):
    if m == len(entries):
        return [] if is_known else [mth(entries)]
    k = largest_power_below(len(entries))
    if m <= k:
        return [*subproof(m, entries[:k], is_known), mth(entries[k:])]
    return [*subproof(m - k, entries[k:], False), mth(entries[:k])]


def root_along(m, n, leaf, hashes):
    """The root over n leaves when leaf m and its audit path are known; None when the path has another length."""
    if n == 1:
        return leaf if not hashes else None
    if not hashes:
        return None
    k = largest_power_below(n)
    if m < k:
        below = root_along(m, k, leaf, hashes[:-1])
        return below and hashlib.sha256(b"\x01" + below + hashes[-1]).digest()
    below = root_along(m - k, n - k, leaf, hashes[:-1])
    return below and hashlib.sha256(b"\x01" + hashes[-1] + below).digest()


# C2SP signed-note, tlog-checkpoint, tlog-cosignature, tlog-proof.


def has_signed(note, vkey):
    """Whether the key has signed the note, by any of its lines that bear the key's name and ID."""
    name, given_id, material = vkey.split("+", 2)
    material = base64.b64decode(material)
    assert hashlib.sha256(name.encode() + b"\n" + material).digest()[:4].hex() == given_id
    text, lines = note[: note.rindex("\n\n") + 1], note[note.rindex("\n\n") + 2 :]
    for line in lines.split("\n")[:-1]:
        dash, signer, signature = line.split(" ")
        assert dash == "\u2014"
        data = base64.b64decode(signature)
        if (signer, data[:4].hex()) != (name, given_id):
            continue
        message, data = text.encode(), data[4:]
        if material[0] == 4:
            message = b"cosignature/v1\ntime %d\n" % int.from_bytes(data[:8], "big") + message
            data = data[8:]
        return is_signature(material[1:], message, data)
    return False


def is_sealed(text, vkey):
    """Whether a ``.tlog-proof`` proves the receipt in it under this key."""
    head, note = text[: text.index("\n\n")], text[text.index("\n\n") + 2 :]
    version, extra, index, *hashes = head.split("\n")
    assert version == "c2sp.org/tlog-proof@v1"
    receipt = base64.b64decode(extra.split(" ")[1])
    assert json.loads(receipt)["version"] == 2
    _, size, root = note.split("\n")[:3]
    leaf = hashlib.sha256(b"\x00" + hashlib.sha256(receipt).digest()).digest()
    if int(index.split(" ")[1]) >= int(size):
        return False
    found = root_along(int(index.split(" ")[1]), int(size), leaf, [base64.b64decode(one) for one in hashes])
    return found == base64.b64decode(root) and has_signed(note, vkey)
