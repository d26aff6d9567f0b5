"""Parses untrusted XML: no document type, no entities, bounded size and depth.

Attacks by entity expansion or external references need a document type, and no message of the network does.
It can only precede the first element, so the beginning of a document is checked before it is parsed. Only
encodings that contain ASCII, and UTF-16 with a byte order mark, are accepted, so that this check is reliable.
The parser loads and expands nothing and stops at `MAX_DEPTH` open elements.
"""

from __future__ import annotations

import codecs
import re

from lxml import etree

from edn.errors import MalformedXml, TooLarge, Unsupported

#: bytes of one document
MAX_BYTES = 1 << 20
#: nested elements; a limit of libxml2
MAX_DEPTH = 256

Element = etree._Element

_ENCODING = re.compile(rb"encoding\s*=\s*[\"']([^\"']*)")
_ENCODINGS = frozenset({b"utf-8", b"us-ascii", b"ascii", b"iso-8859-1"})
#: white space of XML
_SPACE = re.compile(rb"[ \t\r\n]*")
#: characters that are invalid in XML 1.0, even escaped
_INVALID = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
REPLACEMENT = "\ufffd"


def parser() -> etree.XMLParser:
    """Returns a parser without entities, DTDs and network access."""
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
    """Parses a document and returns its root; raises `MalformedXml`, `TooLarge` or `Unsupported`."""
    if len(data) > limit:
        raise TooLarge(f"XML must have at most {limit} bytes, got {len(data)}")
    data = _ascii_like(data)
    _refuse_document_type(data)
    try:
        return etree.fromstring(data, parser())
    except etree.XMLSyntaxError as error:
        line, column = error.position
        detail = (error.msg or "not well-formed").partition(", line ")[0]
        if "depth" in detail:
            raise TooLarge(f"XML must not be nested deeper than {MAX_DEPTH} elements") from None
        raise MalformedXml(f"not XML: line {line}, column {column}: {detail[:200]}") from None
    except (ValueError, LookupError) as error:
        raise MalformedXml(f"not XML: {error}") from None


def fragment(text: str) -> Element:
    """Parses an element; also one from storage, which is not trusted."""
    return parse(text.encode())


def valid_text(text: str) -> str:
    """Replaces characters that are invalid in XML by U+FFFD."""
    return text if text.isascii() and text.isprintable() else _INVALID.sub(REPLACEMENT, text)


def local_name(element: Element) -> str:
    return etree.QName(element).localname


def namespace_of(element: Element) -> str:
    return etree.QName(element).namespace or ""


def text_of(element: Element | None) -> str:
    """Returns the stripped text of a leaf; empty if it is missing."""
    return "" if element is None else (element.text or "").strip()


def _ascii_like(data: bytes) -> bytes:
    """Converts a document to an encoding in which only `<` contains the byte of `<`."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            text = data.decode("utf-16")
        except UnicodeDecodeError as error:
            raise MalformedXml(f"not XML: {error}") from None
        data = re.sub(r"\A(<\?xml[^>]*?)\s+encoding\s*=\s*[\"'][^\"']*[\"']", r"\1", text).encode()
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data[_SPACE.match(data).end() :].startswith(b"<") or b"\0" in data:  # type: ignore[union-attr]  # it matches the empty string
        raise MalformedXml("not XML: a document must begin with <")
    # Of any length: the check must see everything that the parser sees.
    declaration = data[: data.find(b"?>")] if data.startswith(b"<?xml") else b""
    for found in _ENCODING.finditer(declaration):
        if found.group(1).lower() not in _ENCODINGS:
            named = found.group(1).decode("latin-1")[:40]
            raise Unsupported(f"XML must be encoded as UTF-8, or UTF-16 with a byte order mark, got {named}")
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
            raise MalformedXml("XML must not contain a document type (<!DOCTYPE …>)")
        else:
            return
        if end < 0:
            return  # not closed: the parser reports it
        place = end + (2 if data.startswith(b"<?", place) else 3)
