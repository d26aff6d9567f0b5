"""Notifications as mail: one message an attempt, handed to the relay that the settings name.

A batch is one message. Its Message-ID is made of the webhook-id, so that a reader and every relay on the way
can tell a repeated attempt from a new message; what a webhook has in headers it has there, too. The body is
the JSON that a webhook would get, indented.

The relay's reply decides: 2xx taken, 4xx again later, 5xx never.
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from email.utils import formatdate

import msgspec

from edn.errors import InvalidSink
from edn.http import sink_policy
from edn.runtime.ownership import owned
from edn_server.config import Settings
from edn_server.sinks.base import Answer, Message
from edn_server.sinks.concurrency import Slots

#: conversations with the relay at the same time; a tenant has at most half of them
THREADS = 8


@owned("loop")
class MailSink:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mail")
        self._slots = Slots(THREADS)

    async def send(self, message: Message) -> Answer:
        if not self._settings.smtp_host:
            return Answer(None, reason="this server has no mail relay: --smtp-host names one")
        async with self._slots.slot(message.tenant):
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._send, message)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    def _send(self, message: Message) -> Answer:
        settings = self._settings
        try:
            recipient = sink_policy.mail_address(message.url)
            mail = compose(message, recipient, settings.smtp_from)
            with smtplib.SMTP(
                settings.smtp_host, settings.smtp_port, timeout=settings.attempt_seconds
            ) as relay:
                if settings.smtp_starttls:
                    relay.starttls(context=ssl.create_default_context())
                if settings.smtp_user:
                    relay.login(settings.smtp_user, settings.smtp_password)
                relay.send_message(mail, settings.smtp_from, [recipient])
        except smtplib.SMTPRecipientsRefused as error:
            [(code, text)] = error.recipients.values()
            return _refusal(code, text)
        except smtplib.SMTPResponseException as error:
            return _refusal(error.smtp_code, error.smtp_error)
        except InvalidSink as error:
            return Answer(None, reason=error.detail, permanent=True)
        except (smtplib.SMTPException, OSError) as error:
            return Answer(None, reason=f"{type(error).__name__}: {error}")
        return Answer(250)


def compose(message: Message, recipient: str, sender: str) -> EmailMessage:
    """The mail; the same for every attempt but for its date and signature."""
    mail = EmailMessage()
    mail["From"] = sender
    mail["To"] = recipient
    entries = msgspec.json.decode(message.body)["notifications"]
    topics = sorted({str(entry["topic"]) for entry in entries})
    count = "1 notification" if message.events == 1 else f"{message.events} notifications"
    mail["Subject"] = f"{count}: {', '.join(topics)[:120]}"
    mail["Date"] = formatdate(message.timestamp)
    mail["Message-ID"] = f"<{message.webhook_id}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["Webhook-Id"] = message.webhook_id
    mail["Webhook-Timestamp"] = str(message.timestamp)
    if message.signature is not None:
        mail["Webhook-Signature"] = message.signature
    mail.set_content(msgspec.json.format(message.body, indent=2).decode())
    # As a file byte for byte: what was signed, whatever a relay does to the lines of a text.
    mail.add_attachment(message.body, "application", "json", filename="notifications.json")
    return mail


def _refusal(code: int, text: bytes | str) -> Answer:
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    # An SMTP code is no HTTP status: 421 would read as "refused", 550 as "again".
    return Answer(None, reason=f"the mail relay said {code} {shown[:300]}", permanent=code >= 500)
