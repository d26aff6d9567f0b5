"""sdc11073's consumer of WS-Eventing subscriptions, behind the plainest server."""

from __future__ import annotations

import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

with warnings.catch_warnings():
    # One of its modules calls another of its own deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from sdc11073.consumer.subscription import ConsumerSubscriptionManager
    from sdc11073.definitions_sdc import SdcV1Definitions
    from sdc11073.dispatch.request import RequestData
    from sdc11073.loghelper import get_logger_adapter
    from sdc11073.pysoap.msgfactory import MessageFactory
    from sdc11073.pysoap.msgreader import MessageReader
    from sdc11073.pysoap.soapclient import HTTPReturnCodeError, SoapClient
    from sdc11073.xml_types.addressing_types import EndpointReferenceType
    from sdc11073.xml_types.dpws_types import HostedServiceType
    from sdc11073.xml_types.eventing_types import FilterType

__all__ = ["DeviceConsumer", "HTTPReturnCodeError"]


class DeviceConsumer(ThreadingHTTPServer):
    """sdc11073's consumer of subscriptions, behind the plainest server: each message goes to it as it is."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _DeviceHandler)
        log = get_logger_adapter("sdc")
        # Its schemas are those of medical devices, which know no events of ours: those are read unvalidated.
        self.reader = MessageReader(SdcV1Definitions, None, log)
        self.events = MessageReader(SdcV1Definitions, None, log, validate=False)
        factory = MessageFactory(SdcV1Definitions, None, log)
        self.clients: list[SoapClient] = []

        def client(url: str) -> SoapClient:
            netloc = url.split("/")[2]
            made = SoapClient(netloc, 30, log, None, SdcV1Definitions, self.reader)
            self.clients.append(made)
            return made

        self.manager = ConsumerSubscriptionManager(
            self.reader,
            factory,
            SdcV1Definitions.data_model,
            client,
            f"http://127.0.0.1:{self.server_address[1]}/",
        )
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def subscribe(self, url: str, dialect: str, text: str, any_elements: list[Any] | None = None) -> Any:
        hosted = HostedServiceType()
        reference = EndpointReferenceType()
        reference.Address = f"{url}/soap"
        hosted.EndpointReference = [reference]
        filter_type = FilterType()
        filter_type.Dialect, filter_type.text = dialect, text
        subscription = self.manager.mk_subscription(hosted, filter_type)
        subscription.subscribe(expires=3600, any_elements=any_elements)
        return subscription

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.shutdown()
        self.server_close()


class _DeviceHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert isinstance(self.server, DeviceConsumer)
        manager = self.server.manager
        ending = self.path.endswith("_e")
        reader = self.server.reader if ending else self.server.events
        message = reader.read_received_message(body)
        request = RequestData(dict(self.headers), self.path, "", body, message)
        if ending:
            manager.on_subscription_end(request)
        else:
            for subscription in manager.subscriptions.values():
                if subscription.notification_url.endswith(self.path):
                    subscription.on_notification(request)
        self.send_response(202)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass
