"""The sink of mailto: addresses: sends notifications as mail through the relay in the settings.

A delivery batch is one mail. Its Message-ID is the webhook-id, so that readers and relays recognize a
repeated attempt, and it carries the same headers as a webhook. The body is the JSON of a webhook, indented.

The relay's reply decides: 2xx is delivered, 4xx is retried, 5xx is permanent.
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

#: concurrent connections to the relay; a tenant has at most half of them
THREADS = 8


@owned("loop")
class MailSink:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="mail")
        self._slots = Slots(THREADS)

    async def send(self, message: Message) -> Answer:
        if not self._settings.smtp_host:
            return Answer(None, reason="this server has no mail relay; set --smtp-host")
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
    """Composes the mail; only date and signature differ between attempts."""
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
    # The attachment keeps the signed bytes, whatever a relay does to the lines of the text.
    mail.add_attachment(message.body, "application", "json", filename="notifications.json")
    return mail


def _refusal(code: int, text: bytes | str) -> Answer:
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    # An SMTP code is not an HTTP status: 421 would mean "refused", 550 "retry".
    return Answer(None, reason=f"the mail relay answered {code} {shown[:300]}", permanent=code >= 500)
