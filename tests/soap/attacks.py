"""Hostile XML, by name: what each would do to a reader that is not on its guard.

`python -m tests.soap.attacks` prints how long each takes to be refused, and how much memory that takes.
"""

from __future__ import annotations

import resource
import time

from edn.errors import EdnError
from edn.formats import xml


def _laughs(levels: int = 10) -> bytes:
    entities = ['<!ENTITY a0 "ha">'] + [
        f'<!ENTITY a{level} "{f"&a{level - 1};" * 10}">' for level in range(1, levels)
    ]
    return f"<!DOCTYPE x [{''.join(entities)}]><x>&a{levels - 1};</x>".encode()


#: name → document
ATTACKS: dict[str, bytes] = {
    "billion laughs": _laughs(),
    "quadratic blow-up": b'<!DOCTYPE x [<!ENTITY a "'
    + b"a" * 50_000
    + b'">]><x>'
    + b"&a;" * 50_000
    + b"</x>",
    "external entity, file": b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>',
    "external entity, http": b'<!DOCTYPE x [<!ENTITY a SYSTEM "http://127.0.0.1:9/a">]><x>&a;</x>',
    "parameter entity": b'<!DOCTYPE x [<!ENTITY % a SYSTEM "http://127.0.0.1:9/a"> %a;]><x/>',
    "external DTD": b'<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd"><x/>',
    "DTD without anything": b"<!DOCTYPE x><x/>",
    "DTD behind a comment": b"<?xml version='1.0'?><!-- <x> --><?p?><!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>",
    "DTD in UTF-16": "<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>".encode("utf-16"),
    "UTF-7": b'<?xml version="1.0" encoding="UTF-7"?>+ADwAIQ-DOCTYPE x+AD4-<x/>',
    "UTF-7, declared far away": b'<?xml version="1.0"'
    + b" " * 300
    + b'encoding="UTF-7"?>+ADwAIQ-DOCTYPE x +AFsAPAAh-ENTITY a "b"+AD4AXQA+ADw-x y="+ACY-a;"/+AD4-',
    "UTF-7, behind a mark": b'\xef\xbb\xbf<?xml version="1.0" encoding="UTF-7"?>+ADwAIQ-DOCTYPE x+AD4-<x/>',
    "EBCDIC": '<?xml version="1.0" encoding="cp037"?><x/>'.encode("cp037"),
    "UTF-32": "<!DOCTYPE x><x/>".encode("utf-32"),
    "10 MB of text": b"<x>" + b"a" * 10_000_000 + b"</x>",
    "10,000 deep": b"<x>" * 10_000 + b"</x>" * 10_000,
    "undeclared entity": b"<x>&undeclared;</x>",
    "a comment that never ends": b"<!--" + b"-a" * 100_000,
    "XInclude": b'<x xmlns:i="http://www.w3.org/2001/XInclude"><i:include href="/etc/passwd"/></x>',
}


def main() -> None:
    xml.parse(b"<x/>")
    for name, document in ATTACKS.items():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        worst, outcome = 0.0, "taken"
        for _ in range(5):
            began = time.perf_counter()
            try:
                xml.parse(document)
            except EdnError as error:
                outcome = f"refused with {error.status}"
            worst = max(worst, 1e3 * (time.perf_counter() - began))
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"{name:28}{len(document):>12,} bytes{worst:>8.2f} ms{more:>8} KiB more  {outcome}")


if __name__ == "__main__":
    main()
