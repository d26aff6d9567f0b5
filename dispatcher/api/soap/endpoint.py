"""The endpoint `/soap`: reads a message, runs its operation, writes a reply or a fault. Plain ASGI."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import structlog
from lxml import etree
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dispatcher.api.publish import BODY_BYTES
from dispatcher.api.soap import faults, wsdl
from dispatcher.api.soap.operations import Operation, Request, Table
from dispatcher.auth.access import Guard, caller_of
from edn.errors import EdnError, Unsupported
from edn.formats import xml
from edn.formats.event_xml import NAMESPACE
from edn.formats.soap import addressing, envelope
from edn.formats.soap.addressing import WSA_2005, Headers
from edn.formats.soap.envelope import SOAP_11, SOAP_12, Envelope, Fault
from edn.formats.xml import Element
from edn.http.asgi import problem_response, read_body

logger = structlog.get_logger()

PATH = "/soap"
_SOAP_12_TYPE = b"application/soap+xml"


class SoapEndpoint:
    """The ASGI app of the endpoint."""

    def __init__(self, guard: Guard, operations: Table) -> None:
        """`operations`: of `eventing`, `publishing` and `management`."""
        self._guard = guard
        self._limit = min(BODY_BYTES, xml.MAX_BYTES)
        self._table = operations

    @staticmethod
    def serves(scope: Scope) -> bool:
        return scope.get("path") == PATH and scope.get("method") in ("GET", "HEAD", "POST")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            page = wsdl.document(_url(scope))
            await Response(page, media_type="text/xml")(scope, receive, send)
            return
        try:
            _check_media_type(scope)
            body = await read_body(receive, self._limit)
        except EdnError as error:
            await problem_response(error)(scope, receive, send)
            return
        await self._answer(scope, body, receive, send)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        # The version of faults about unreadable messages.
        version = SOAP_12 if _media_type(scope) == _SOAP_12_TYPE else SOAP_11
        headers = Headers()
        try:
            message = envelope.read(body, limit=self._limit)
            version = message.version
            headers = addressing.read(message)
            operation = self._operation(message, headers)
            caller = caller_of(scope)
            self._guard.require(caller, operation.need, scope)
            assert message.payload is not None
            request = Request(message, headers, message.payload, _url(scope), _topic(scope), caller)
            reply = await operation.run(request)
            status, action, payload, extra = 200, reply.action, reply.payload, []
        except Exception as error:
            fault = _fault(error)
            status = 400 if version is SOAP_12 and fault.code == "Sender" else 500
            action = fault.action or headers.edition.fault_action
            payload, extra = envelope.fault_body(version, fault), envelope.not_understood(version, fault)
        fault_to = headers.fault_to if status != 200 else None
        if (fault_to or headers.reply_to) == WSA_2005.nowhere:
            await Response(status_code=202)(scope, receive, send)
            return
        if headers.given:
            extra += addressing.message_headers(
                headers.edition, action=action, relates_to=headers.message_id, to=headers.edition.anonymous
            )
        await Response(
            envelope.write(version, extra, payload),
            status_code=status,
            headers={"content-type": version.content_type(action)},
        )(scope, receive, send)

    def _operation(self, message: Envelope, headers: Headers) -> Operation:
        unknown = [
            etree.QName(header)
            for header in message.mandatory()
            if xml.namespace_of(header) not in (NAMESPACE, *addressing.EDITIONS)
            and not header.get(addressing.WSA_2005.tag("IsReferenceParameter"))
        ]
        if unknown:
            names = ", ".join(f"{{{name.namespace}}}{name.localname}" for name in unknown)
            raise Fault(
                "MustUnderstand", f"mandatory headers are not understood: {names}", not_understood=unknown
            )
        if message.payload is None:
            raise Fault("Sender", "the Body is empty; it must contain the element of an operation")
        operation = self._table.get(message.payload.tag)
        if operation is None:
            raise Fault(
                "Sender",
                f"unknown operation {message.payload.tag[:200]}; GET {PATH}?wsdl lists all operations",
                subcode=etree.QName(headers.edition.namespace, "ActionNotSupported"),
                action=headers.edition.fault_action,
            )
        if headers.action is not None and headers.action != operation.action:
            raise Fault(
                "Sender",
                f"wsa:Action of this Body must be {operation.action}, got {headers.action[:200]}",
                subcode=etree.QName(headers.edition.namespace, "ActionNotSupported"),
                detail=[_problem_action(headers)],
                action=headers.edition.fault_action,
            )
        return operation


def _fault(error: Exception) -> Fault:
    if isinstance(error, Fault):
        return error
    if isinstance(error, EdnError):
        return faults.translate(error)
    logger.error("unhandled", path=PATH, exc_info=error)
    return Fault("Receiver", "internal error; see the log of the dispatcher")


def _problem_action(headers: Headers) -> Element:
    root = etree.Element(headers.edition.tag("ProblemAction"), nsmap={"a": headers.edition.namespace})
    etree.SubElement(root, headers.edition.tag("Action")).text = headers.action
    return root


def _media_type(scope: Scope) -> bytes:
    content_type: bytes = dict(scope["headers"]).get(b"content-type", b"")
    return content_type.partition(b";")[0].strip().lower()


def _check_media_type(scope: Scope) -> None:
    """Raises `Unsupported` for other types: any web page may send text/plain without a preflight request."""
    given = _media_type(scope)
    if given not in (b"text/xml", _SOAP_12_TYPE):
        raise Unsupported(
            "Content-Type must be text/xml (SOAP 1.1) or application/soap+xml (SOAP 1.2), got "
            f'"{given.decode("latin-1")[:80]}"'
        )


def _topic(scope: Scope) -> str | None:
    named = parse_qs(scope["query_string"].decode("latin-1")).get("topic")
    return named[0] if named else None


def _url(scope: Scope) -> str:
    """Returns the URL of the endpoint as the client reached it."""
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    if not host or any(character in host for character in "<>\"' "):
        server: Any = scope.get("server") or ("localhost", 80)
        host = f"{server[0]}:{server[1]}"
    return f"{scope.get('scheme', 'http')}://{host}{PATH}"
