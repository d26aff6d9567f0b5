"""Mail, received by a real SMTP server in the same process."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from deliverykit import EVENT, Receiver, fill, notifying, run
from serverkit import Kit, activate, item
from standardwebhooks import Webhook

from edn.errors import InvalidSink
from edn.formats import webhooks
from edn.formats.webhooks import KeyRing
from edn.http import sink_policy
from edn_server.policies import Batching
from tests.network.processes import free_port


class Mailbox:
    """Takes every mail, unless told what to answer instead."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.attempts: list[str] = []
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []

    async def handle_RCPT(  # noqa: N802  the name is aiosmtpd's
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        self.attempts.append(address)
        if self.answers:
            return self.answers.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 OK"


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, dict[str, Any]]]:
    box = Mailbox()
    port = free_port()
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    yield box, {"smtp_host": "127.0.0.1", "smtp_port": port, "smtp_from": "edn@example.org"}
    controller.stop()


def attachment(mail: EmailMessage) -> bytes:
    [part] = mail.iter_attachments()
    content = part.get_content()
    assert isinstance(content, bytes)
    return content


def test_a_batch_is_one_mail_that_a_receiver_can_verify(
    kit: Kit, mailbox: tuple[Mailbox, dict[str, Any]]
) -> None:
    box, relay = mailbox
    secret = webhooks.new_secret()

    async def scenario(_: Receiver) -> None:
        kit.store(item("s", url="mailto:ann@example.org", ring="r"), rings=[KeyRing("r", secret)])
        kit.frame(0, 1, activate(1, ("s", 1)))
        for offset in (2, 3):
            kit.frame(offset - 1, offset, events=[(offset, EVENT)])
        async with notifying(kit, batching=Batching(), **relay) as notifier:
            await notifier.idle()
            assert notifier.counters.delivered == 1

    run(scenario)
    [mail] = box.mails
    assert box.recipients == [["ann@example.org"]]
    assert mail["Subject"] == "2 notifications: quotes"
    assert mail["Message-ID"] == f"<{mail['Webhook-Id']}@example.org>"
    body = attachment(mail)
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    headers = {name: str(mail[name]) for name in names}
    told = Webhook(secret).verify(body, headers)
    assert [entry["event"]["id"] for entry in told["notifications"]] == ["e2", "e3"]
    text = mail.get_body(("plain",))
    assert text is not None
    assert '"symbol": "GE"' in text.get_content()
    assert kit.rows() == []


def test_a_mail_that_is_tried_again_has_the_same_message_id(
    kit: Kit, mailbox: tuple[Mailbox, dict[str, Any]]
) -> None:
    box, relay = mailbox
    box.answers = ["451 later", "421 busy"]

    async def scenario(_: Receiver) -> None:
        fill(kit, "mailto:ann@example.org")
        [row] = kit.rows()
        async with notifying(kit, **relay) as notifier:
            await notifier.idle()
            assert (notifier.counters.delivered, notifier.counters.failed) == (1, 2)
            [newest, *older] = notifier.attempts.latest(row.address, [], 0)
            assert {one.webhook_id for one in older} == {newest.webhook_id}
            assert box.mails[0]["Message-ID"] == f"<{newest.webhook_id}@example.org>"

    run(scenario)


def test_a_mailbox_that_is_refused_for_good_makes_a_dead_letter_at_once(
    kit: Kit, mailbox: tuple[Mailbox, dict[str, Any]]
) -> None:
    box, relay = mailbox
    box.answers = ["550 no such mailbox"]

    async def scenario(_: Receiver) -> None:
        fill(kit, "mailto:nobody@example.org")
        async with notifying(kit, **relay) as notifier:
            await notifier.idle()
            assert (notifier.counters.failed, notifier.counters.dead) == (1, 1)

    run(scenario)
    assert box.attempts == ["nobody@example.org"]
    assert kit.count("dead_letters") == 1


MAILBOXES = [
    ("mailto:ann@example.org", "ann@example.org"),
    ("mailto:ann+news@mail.example.org", "ann+news@mail.example.org"),
    ("mailto:ann%2Bnews@example.org", "ann+news@example.org"),
    ("mailto:", None),
    ("mailto:ann", None),
    ("mailto:@example.org", None),
    ("mailto:ann@", None),
    ("mailto:ann@example.org,bob@example.org", None),
    ("mailto:ann@example.org?bcc=all@example.org", None),
    ("mailto:ann%0d%0aBcc:all@example.org", None),
    ("mailto:.ann@example.org", None),
    ("mailto:ann@example..org", None),
    ("mailto:ann@" + "e" * 300, None),
]


@pytest.mark.parametrize(("url", "expected"), MAILBOXES)
def test_which_mailboxes_are_taken(url: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(InvalidSink):
            sink_policy.check_url(url, allow_mail=True)
    else:
        sink_policy.check_url(url, allow_mail=True)
        assert sink_policy.mail_address(url) == expected


def test_mail_is_refused_where_it_is_not_allowed() -> None:
    with pytest.raises(InvalidSink, match="--allow-mail-sinks"):
        sink_policy.check_url("mailto:ann@example.org")
