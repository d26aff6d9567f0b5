"""Names of WS-Eventing.

The submission of August 2004 and the recommendation of 2011 are the same protocol with different names. Every
difference is a field of `Vocabulary`.
"""

from __future__ import annotations

from dataclasses import dataclass

from lxml import etree

XPATH = "http://www.w3.org/TR/1999/REC-xpath-19991116"
#: dialect of filters in the network's own language, as text or as the text of an element
FILTER = "urn:edn:filter"
#: dialect of the Devices Profile for Web Services: a list of actions, here of topics
ACTION = "http://docs.oasis-open.org/ws-dd/ns/dpws/2009/01/Action"
#: action of a notification: this prefix and the topic
TOPIC_ACTION = "urn:edn:topic:"
#: reasons for the end of a subscription, in both vocabularies
CANCELLED = "SourceCancelling"
FAILED = "DeliveryFailure"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    name: str
    namespace: str
    #: element with the granted expiry
    granted: str
    #: default dialect of a filter
    default_dialect: str
    #: other names of XPath 1.0
    xpath_dialects: frozenset[str]
    #: value of Delivery/@Mode or Format/@Name → whether notifications are wrapped
    deliveries: dict[str, bool]
    #: local names of faults
    faults: Faults
    #: whether the answer to Unsubscribe has a body element
    unsubscribe_answers: bool
    #: granted expiry of a subscription without an expiry; None: no element
    never: str | None

    def tag(self, name: str) -> str:
        return f"{{{self.namespace}}}{name}"

    def action(self, name: str) -> str:
        return f"{self.namespace}/{name}"

    @property
    def fault_action(self) -> str:
        return f"{self.namespace}/fault"

    def fault(self, name: str) -> etree.QName:
        return etree.QName(self.namespace, name)


@dataclass(frozen=True, slots=True)
class Faults:
    """Names of faults by their cause."""

    delivery: str
    expiration: str
    filter: str
    endpoint: str
    renew: str
    unknown: str
    expiration_type: str = "UnsupportedExpirationType"
    dialect: str = "FilteringRequestedUnavailable"
    message: str = "InvalidMessage"
    unable: str = "EventSourceUnableToProcess"


_2004 = "http://schemas.xmlsoap.org/ws/2004/08/eventing"
_2011 = "http://www.w3.org/2011/03/ws-evt"

WSE_2004 = Vocabulary(
    name="2004",
    namespace=_2004,
    granted="Expires",
    default_dialect=XPATH,
    xpath_dialects=frozenset({XPATH}),
    deliveries={f"{_2004}/DeliveryModes/Push": False, f"{_2004}/DeliveryModes/Wrap": True},
    faults=Faults(
        delivery="DeliveryModeRequestedUnavailable",
        expiration="InvalidExpirationTime",
        filter="FilteringRequestedUnavailable",
        endpoint="InvalidMessage",
        renew="UnableToRenew",
        unknown="InvalidMessage",
    ),
    unsubscribe_answers=False,
    never=None,
)
WSE_2011 = Vocabulary(
    name="2011",
    namespace=_2011,
    granted="GrantedExpires",
    default_dialect=f"{_2011}/Dialects/XPath10",
    xpath_dialects=frozenset({XPATH, f"{_2011}/Dialects/XPath10"}),
    deliveries={f"{_2011}/DeliveryFormats/Unwrap": False, f"{_2011}/DeliveryFormats/Wrap": True},
    faults=Faults(
        delivery="DeliveryFormatRequestedUnavailable",
        expiration="UnsupportedExpirationValue",
        filter="CannotProcessFilter",
        endpoint="UnusableEPR",
        renew="UnknownSubscription",
        unknown="UnknownSubscription",
    ),
    unsubscribe_answers=True,
    never="PT0S",
)
VOCABULARIES = {one.name: one for one in (WSE_2004, WSE_2011)}
BY_NAMESPACE = {one.namespace: one for one in (WSE_2004, WSE_2011)}
