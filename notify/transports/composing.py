"""A letter as bytes: headers that nothing can be injected into, a text and an HTML part; pure."""

import re
from email.charset import BASE64, QP, Charset
from email.header import Header
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.utils import formataddr, parseaddr
from hashlib import sha256

from django.utils.encoding import punycode

from ..texts import clean, one_line
from .base import Letter

UTF8, UTF8_QP, UTF8_BASE64 = Charset("utf-8"), Charset("utf-8"), Charset("utf-8")
UTF8.body_encoding, UTF8_QP.body_encoding, UTF8_BASE64.body_encoding = None, QP, BASE64  # type: ignore[assignment]
#: RFC 5322 section 2.1.1: a line has at most 78 characters, and must not have more than 998.
LINE_CHARS_MAX, BODY_LINE_CHARS_MAX = 76, 998
LINE_END = re.compile(rb"\r\n|\r|\n")


def compose(letter: Letter) -> bytes:
    """Return the message as it goes over the wire, before dots are doubled. Raises: ValueError, for a hostile value."""
    message: MIMEMultipart | MIMEText = alternative(letter) if letter.html else text_part(letter.text, "plain")
    if letter.html:
        message.attach(text_part(letter.text, "plain"))
        message.attach(text_part(letter.html, "html"))
    message["From"] = shown_address(letter.sender)
    message["To"] = ", ".join(envelope_address(address) for address in letter.to)
    message["Subject"] = header(letter.subject)  # type: ignore[assignment]
    for name, value in letter.headers:
        message[name] = one_line(value)
    return LINE_END.sub(b"\r\n", message.as_bytes()).rstrip(b"\r\n") + b"\r\n"


def alternative(letter: Letter) -> MIMEMultipart:
    """Return an empty pair of bodies. The boundary is a digest of both, so that neither can hold it."""
    digest = sha256((letter.text + letter.html).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return MIMEMultipart("alternative", boundary=f"kwit-{digest}")


def text_part(text: str, subtype: str) -> MIMEText:
    """Return one part of the body in 7 bits: plain, or readable where most of it is ASCII, or else short."""
    text = clean(text)
    if text.isascii():
        charset = UTF8 if all(len(line) <= BODY_LINE_CHARS_MAX for line in text.splitlines()) else UTF8_QP
    else:
        charset = UTF8_QP if sum(map(str.isascii, text)) * 4 > len(text) * 3 else UTF8_BASE64
    return MIMEText(text, subtype, charset)  # type: ignore[arg-type]


def header(text: str) -> str | Header:
    """Return one line as a header's value, encoded when it has to be."""
    line = one_line(text)
    # "=?" would be read as an encoded word by whoever receives it, so it is hidden in one of our own.
    if line.isascii() and len(line) <= LINE_CHARS_MAX and "=?" not in line:
        return line
    return Header(line, "utf-8", maxlinelen=LINE_CHARS_MAX, header_name="Subject")


def envelope_address(address: str) -> str:
    """Return the bare address as a server takes it, a domain in other letters as punycode. Raises: ValueError."""
    bare = parseaddr(address)[1] if "<" in address else address
    local, at, domain = bare.rpartition("@")
    if not local.isascii() or not bare.isprintable() or any(c in bare for c in "<> "):
        raise ValueError(f"not an address that mail can be sent to: {address!r}")
    return f"{local}{at}{domain if domain.isascii() else punycode(domain)}"


def shown_address(address: str) -> str:
    """Return an address with its display name as a header's value."""
    name, bare = parseaddr(one_line(address))
    return formataddr((name, envelope_address(bare)), "utf-8") if name else envelope_address(bare)
