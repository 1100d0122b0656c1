"""Names and addresses by the form in which they stand in any text: users, hosts, networks, serials."""

from __future__ import annotations

import re
from collections.abc import Callable

from infer_doctor.late import Late

USER = Late(
    r"(?:(?<=/home/)|(?<=/Users/)|(?<=\\Users\\)|(?<=\\\\Users\\\\))(?P<s>[^/\s:\"'<>\\,;)]+)"
)
USER_FOLDER = Late(r"(?:(?<=/users/)|(?<=[\s\"'=:(]~)|(?<=^~))(?P<s>[a-z][\w-]{2,})(?=/)", re.M)
USER_VARIABLE = Late(
    r"(?<![A-Za-z0-9_])(?:USER|LOGNAME|SUDO_USER|USERNAME)[\"']?[=:][ \t]*[\"']?(?P<s>(?!root\b)[A-Za-z_][\w.@-]{2,})"
)
"""The name stands there; `USER 1000`, `USER=$(id -un)` and root name nobody."""
PROMPT_USER = Late(
    r"^(?:\([^)\n]+\) ?)?\[?(?P<s>(?!root@)[a-z_][\w.-]*)@[\w.-]+[: ][^\n$#]*[$#] ", re.M
)
PROMPT = Late(r"^(?:\([^)\n]+\) ?)?\[?[<>:\w.-]+@(?P<s>[\w.-]+)[: ][^\n$#]*[$#] ", re.M)
"""user@host:folder$ of a shell session that was copied."""

MAC = Late(
    r"(?<![\w:.-])(?P<s>[0-9A-Fa-f]{2}(?P<sep>[:-])(?:[0-9A-Fa-f]{2}(?P=sep)){4}[0-9A-Fa-f]{2})(?![\w:-])"
)
NO_MAC = Late(r"(?:00[:-]){5}00|(?:[fF]{2}[:-]){5}[fF]{2}")
GUID = Late(
    r"(?i)\b(?:\w+[ _])?guid[\"']?\s*[:=]?\s*[\"']?(?P<s>0x(?!0+\b)[0-9a-f]{16}|(?:[0-9a-f]{4}:){3}[0-9a-f]{4})\b"
)
"""Of InfiniBand: the MAC address of the adapter with four more digits within."""
SERIAL = Late(
    r"(?i)(?:\b(?:\w+_)?serial(?:[ _-]?(?:number|no\.?))?[\"'\\]*\s*[:=]\s*[\"'\\]*|<serial>\s*)"
    r"(?P<s>\d{8,16}|(?-i:(?=[A-Z-]*\d)(?=\d*[A-Z])[A-Z0-9]{7,20}))\b"
)

QUAD_CORE = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}")
BEFORE_IP = Late(
    r"(?:://|@|(?<![A-Za-z0-9-])(?:(?:pod|host|cluster|node|internal|external|load ?balancer)_?)?"
    r"(?:host(?:name)?|addr(?:ess)?|ips?|inet|peer|server|client|listen(?:ing)?|node|bind|dns"
    r"|gateway|remote|via|src|connect(?:ing|ed|ion)?)(?:[ _](?:ip|addr|address|on|to|from|at))?[\"'\\]*[ \t]*[:=(]?"
    r"[ \t]*[\"'\\(\[]*)\Z",
    re.I,
)
"""What says that a quad of numbers behind it is an address and no version."""
LOOK_BACK = 40
AFTER_IP = Late(r":\d{1,5}\b|/\d{1,2}(?![\w.])|<\d+>|['\"],[ \t]*\d{2,5}\)")
"""A port, a mask, the port of NCCL or of a pair of Python."""
PRIVATE = Late(
    r"192\.168\.\d{1,3}\.\d{1,3}|169\.254\.\d{1,3}\.\d{1,3}|172\.(?:1[6-9]|2\d|3[01])\.\d{1,3}\.\d{1,3}"
)
"""Private networks that no version looks like (RFC 1918, RFC 3927); 10.13.3.9 is one of TensorRT."""
HOSTS_ROW = Late(
    r"[ \t]+(?:(?P<name>[a-z][\w-]*)[ \t]+(?P=name)\.|[a-z][\w-]*\.[\w.-]+[ \t]+[a-z])", re.I
)
"""What follows an address in /etc/hosts, where it stands first in its line."""

MAC_CORE = re.compile(r"[:-][0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-]")
SIX_CORE = re.compile(r":[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{1,4}")
IP_SIX = Late(
    r"(?:(?<![\w:.])|(?<=[a-z]\d:))"
    r"(?P<s>(?:2[0-9a-f]{3}|3[0-9a-f]{3}|f[cd][0-9a-f]{2}|fe80)(?::[0-9a-f]{0,4}){2,7})(?![\w:])",
    re.I,
)

HOST_FORMS = Late(
    r"(?<![\w.-])(?P<s>ip-\d{1,3}(?:-\d{1,3}){3}(?:\.[a-z0-9-]+)*"
    r"|[a-z0-9][\w-]*(?:\.[\w-]+)*\.(?:(?:compute|ec2)(?:-\d)?\.internal|c\.[a-z0-9-]+\.internal"
    r"|(?:svc|pod)\.cluster\.local|home\.arpa|intranet))(?![\w-])",
    re.I,
)
HOST_WORDS = ("ip-", ".internal", "cluster.local", "home.arpa", ".intranet")
SYSLOG = Late(
    r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)) "
    r"(?P<s>(?!<)[\w.-]+) [\w./@-]+(?:\[\d+\])?: ",
    re.M,
)
NCCL = Late(r"(?<![\w.<>-])(?P<s>[A-Za-z][\w.-]*):\d+:\d+ \[\d+\] (?:[\w:.]+ )?NCCL ")
"""Each line that NCCL_DEBUG gives begins with the host's name, the process and the thread."""

EMAIL = Late(
    r"(?:(?<![\w.+@:/\\-])|(?<=\\[nrt]))"
    r"(?P<s>(?!git@)[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,})(?![\w.@-]*[=:/])"
)


def mask_addresses(text: str, put: Callable[[str, re.Match[str]], str]) -> str:
    """The text with addresses of adapters and networks replaced by what `put(kind, match)` gives."""
    if MAC_CORE.search(text):
        text = MAC.sub(lambda m: m[0] if NO_MAC.fullmatch(m["s"]) else put("mac", m), text)
    if QUAD_CORE.search(text):
        text = QUAD.sub(lambda m: put("ip", m) if _is_address(m) else m[0], text)
    if SIX_CORE.search(text):
        text = IP_SIX.sub(lambda m: put("ip", m) if _is_six(m["s"]) else m[0], text)
    return text


QUAD = Late(rf"(?<![\w.])(?P<s>{QUAD_CORE.pattern})(?!\.|[A-Za-z0-9])")


def _is_address(match: re.Match[str]) -> bool:
    """A quad is an address behind a word that says so, or before a port or a mask; else a version."""
    text, start, end = match.string, match.start(), match.end()
    if PRIVATE.fullmatch(match["s"]):
        return True
    before = text[max(0, start - LOOK_BACK) : start]
    if before[-1:] not in ("<", ">", "~", "-", "=") and AFTER_IP.match(text, end):
        return True
    first = not before.rpartition("\n")[2] and (start == 0 or text[start - 1] == "\n")
    return bool(BEFORE_IP.search(before)) or (first and bool(HOSTS_ROW.match(text, end)))


def _is_six(text: str) -> bool:
    import ipaddress  # only where something looks like one

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
