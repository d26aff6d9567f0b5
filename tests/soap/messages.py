"""Messages as a client would write them, by hand: nothing here comes from the code that reads them."""

from __future__ import annotations

from typing import Any

import httpx
from lxml import etree

ENVELOPES = {
    "1.1": "http://schemas.xmlsoap.org/soap/envelope/",
    "1.2": "http://www.w3.org/2003/05/soap-envelope",
}
EVENTING = {
    "2004": "http://schemas.xmlsoap.org/ws/2004/08/eventing",
    "2011": "http://www.w3.org/2011/03/ws-evt",
}
ADDRESSING = {
    "2004": "http://schemas.xmlsoap.org/ws/2004/08/addressing",
    "2005": "http://www.w3.org/2005/08/addressing",
}
OURS = "urn:edn:soap"


def namespaces(eventing: str = "2011", addressing: str = "2005") -> dict[str, str]:
    return {"w": EVENTING[eventing], "a": ADDRESSING[addressing], "e": OURS}


def envelope(
    body: str, headers: str = "", *, soap: str = "1.2", eventing: str = "2011", addressing: str = "2005"
) -> bytes:
    return (
        f'<s:Envelope xmlns:s="{ENVELOPES[soap]}" xmlns:w="{EVENTING[eventing]}"'
        f' xmlns:a="{ADDRESSING[addressing]}" xmlns:e="{OURS}">'
        f"<s:Header>{headers}</s:Header><s:Body>{body}</s:Body></s:Envelope>"
    ).encode()


class Answer:
    """What came back, with ways to look into it."""

    def __init__(self, response: httpx.Response, eventing: str, addressing: str) -> None:
        self.status = response.status_code
        self.media_type = response.headers["content-type"].partition(";")[0]
        self.root = etree.fromstring(response.content)
        self._namespaces = {
            **namespaces(eventing, addressing),
            "s": etree.QName(self.root).namespace or "",
            "t": "http://www.w3.org/2003/05/soap-envelope",
        }

    def all(self, path: str) -> list[Any]:
        found = self.root.xpath(path, namespaces=self._namespaces)
        assert isinstance(found, list)
        return found

    def text(self, path: str) -> str:
        found = self.all(path)
        assert len(found) == 1, (path, etree.tostring(self.root))
        return found[0].text or ""

    @property
    def reason(self) -> str:
        return self.text("//faultstring | //t:Reason/t:Text")

    @property
    def codes(self) -> list[str]:
        """Local names of the code and, if there is one, of the subcode."""
        found = self.all("//faultcode | //t:Code//t:Value")
        return [str(one.text).partition(":")[2] for one in found]


class Client:
    """One way to speak: a version of SOAP, of WS-Eventing and of WS-Addressing."""

    def __init__(
        self, url: str, *, soap: str = "1.2", eventing: str = "2011", addressing: str = "2005"
    ) -> None:
        self.url = url + "/soap"
        self.soap, self.eventing, self.addressing = soap, eventing, addressing
        self._http = httpx.Client(timeout=30)

    def close(self) -> None:
        self._http.close()

    def post(self, content: bytes, action: str = "") -> Answer:
        kind = (
            {"content-type": f'application/soap+xml; action="{action}"'}
            if self.soap == "1.2"
            else {"content-type": "text/xml; charset=utf-8", "soapaction": f'"{action}"'}
        )
        response = self._http.post(self.url, content=content, headers=kind)
        return Answer(response, self.eventing, self.addressing)

    def ask(self, action: str, body: str, headers: str = "") -> Answer:
        headers = (
            f"<a:Action>{action}</a:Action><a:MessageID>urn:uuid:1</a:MessageID>"
            f"<a:To>{self.url}</a:To>{headers}"
        )
        content = envelope(body, headers, soap=self.soap, eventing=self.eventing, addressing=self.addressing)
        return self.post(content, action)

    # -- WS-Eventing -----------------------------------------------------------------------------------

    def subscribe(
        self,
        topic: str,
        sink: str,
        *,
        filter: str = "",
        expires: str | None = "PT1H",
        mode: str | None = None,
        parameters: str = "",
        end: str = "",
        more: str = "",
    ) -> Answer:
        ns = EVENTING[self.eventing]
        reference = f"<a:ReferenceParameters>{parameters}</a:ReferenceParameters>" if parameters else ""
        delivery = f' Mode="{mode}"' if mode and self.eventing == "2004" else ""
        layout = f'<w:Format Name="{mode}"/>' if mode and self.eventing == "2011" else ""
        ending = f"<w:EndTo><a:Address>{end}</a:Address></w:EndTo>" if end else ""
        until = "" if expires is None else f"<w:Expires>{expires}</w:Expires>"
        return self.ask(
            f"{ns}/Subscribe",
            f"<w:Subscribe>{ending}<w:Delivery{delivery}><w:NotifyTo><a:Address>{sink}</a:Address>{reference}"
            f"</w:NotifyTo></w:Delivery>{layout}{until}{filter}<e:Topic>{topic}</e:Topic>{more}</w:Subscribe>",
        )

    def manage(self, name: str, subscription: str, inside: str = "") -> Answer:
        return self.ask(
            f"{EVENTING[self.eventing]}/{name}",
            f"<w:{name}>{inside}</w:{name}>",
            f'<e:Subscription a:IsReferenceParameter="true">{subscription}</e:Subscription>',
        )

    def granted(self, answer: Answer) -> str:
        return answer.text("//w:Expires" if self.eventing == "2004" else "//w:GrantedExpires")

    # -- ours ------------------------------------------------------------------------------------------

    def publish(self, topic: str, *events: str) -> Answer:
        return self.ask(
            f"{OURS}/Publish", f"<e:Publish><e:Topic>{topic}</e:Topic>{''.join(events)}</e:Publish>"
        )


def event(**attributes: object) -> str:
    inside = "".join(f"<{name}>{value}</{name}>" for name, value in attributes.items())
    return f"<e:event>{inside}</e:event>"
