"""The one place where XML from outside is read: no document type, no entities, bounded size and depth.

A document type is the root of every attack that makes a small document a large one or has it fetch something,
and no message of ours needs one. It can only stand before the first element, so the beginning of a document
is looked at before the parser sees any of it. Only encodings in which ASCII stays ASCII are taken, and UTF-16
with its mark, so that this look cannot be deceived. The parser itself loads nothing, expands nothing and
stops at `MAX_DEPTH` open elements.

What is written goes through here, too: XML cannot say every character that a string may hold.
"""

from __future__ import annotations

import codecs
import re

from lxml import etree

from edn.errors import MalformedXml, TooLarge, Unsupported

#: bytes of one document
MAX_BYTES = 1 << 20
#: open elements at a time; libxml2's own bound, which it keeps while it parses
MAX_DEPTH = 256

Element = etree._Element

_ENCODING = re.compile(rb"encoding\s*=\s*[\"']([^\"']*)")
_ENCODINGS = frozenset({b"utf-8", b"us-ascii", b"ascii", b"iso-8859-1"})
#: what may stand before the first element, besides a document type
_SPACE = re.compile(rb"[ \t\r\n]*")
#: characters that no XML 1.0 document can hold, not even escaped
_UNSAYABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"


def parser() -> etree.XMLParser:
    """A new parser with everything off that a message does not need."""
    return etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )


def parse(data: bytes, *, limit: int = MAX_BYTES) -> Element:
    """The root of a document; raises `MalformedXml`, `TooLarge` or `Unsupported`."""
    if len(data) > limit:
        raise TooLarge(f"the XML has {len(data)} bytes; at most {limit} are taken")
    data = _ascii_like(data)
    _refuse_document_type(data)
    try:
        return etree.fromstring(data, parser())
    except etree.XMLSyntaxError as error:
        line, column = error.position
        detail = (error.msg or "not well-formed").partition(", line ")[0]
        if "depth" in detail:
            raise TooLarge(f"the XML is nested deeper than {MAX_DEPTH}") from None
        raise MalformedXml(f"not XML: line {line}, column {column}: {detail[:200]}") from None
    except (ValueError, LookupError) as error:
        raise MalformedXml(f"not XML: {error}") from None


def fragment(text: str) -> Element:
    """An element from text that we wrote ourselves, but which was kept where others may write."""
    return parse(text.encode())


def sayable(text: str) -> str:
    """The text with what XML cannot say replaced by U+FFFD."""
    return text if text.isascii() and text.isprintable() else _UNSAYABLE.sub(REPLACEMENT, text)


def local_name(element: Element) -> str:
    return etree.QName(element).localname


def namespace_of(element: Element) -> str:
    return etree.QName(element).namespace or ""


def text_of(element: Element | None) -> str:
    """The text of a leaf without the space around it; empty where there is none."""
    return "" if element is None else (element.text or "").strip()


def _ascii_like(data: bytes) -> bytes:
    """The document in an encoding in which `<` is one byte and no other character has it."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            text = data.decode("utf-16")
        except UnicodeDecodeError as error:
            raise MalformedXml(f"not XML: {error}") from None
        data = re.sub(r"\A(<\?xml[^>]*?)\s+encoding\s*=\s*[\"'][^\"']*[\"']", r"\1", text).encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data[_SPACE.match(data).end() :].startswith(b"<") or b"\0" in data:  # type: ignore[union-attr]  # it matches the empty string
        raise MalformedXml("not XML: it does not begin with <")
    # However long it is: what the parser would read there, this must have read.
    declaration = data[: data.find(b"?>")] if data.startswith(b"<?xml") else b""
    for found in _ENCODING.finditer(declaration):
        if found.group(1).lower() not in _ENCODINGS:
            named = found.group(1).decode("latin-1")[:40]
            raise Unsupported(f"XML in the encoding {named}; UTF-8 and UTF-16 with its mark are taken")
    return data


def _refuse_document_type(data: bytes) -> None:
    place = 0
    while True:
        found = _SPACE.match(data, place)
        place = found.end() if found else place
        if data.startswith(b"<?", place):
            end = data.find(b"?>", place)
        elif data.startswith(b"<!--", place):
            end = data.find(b"-->", place + 4)
        elif data.startswith(b"<!", place):
            raise MalformedXml("XML with a document type (<!DOCTYPE …>) is not taken; leave it out")
        else:
            return
        if end < 0:
            return  # never closed: the parser says so
        place = end + (2 if data.startswith(b"<?", place) else 3)
