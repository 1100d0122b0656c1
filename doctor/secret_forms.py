"""Secrets, names and addresses by the form in which they stand in any text: logs, YAML, JSON, code.

Each form has words, one of which is in every text that it matches (a search for a word is much faster
than for a pattern), and a pattern whose group `s` is what must go. Forms of tokens are those of their
makers (as in the rule sets of secret scanners); settings are found by their name. What is only a
reference (`$HF_TOKEN`), a word of code (`lambda:`) or a token of a vocabulary (`eos_token`) stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

Replace = Callable[[str, str], str]
"""(kind, value) -> what stands there instead."""

MADE = re.compile(
    r"(?<![A-Za-z0-9])(?P<s>hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
    r"|github_pat_\w{20,}|(?:glpat|nvapi)-[A-Za-z0-9_-]{16,}|xox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|xapp-[A-Za-z0-9-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|GOCSPX-[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}|dckr_pat_[A-Za-z0-9_-]{20,}"
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|gsk_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{30,}|dapi[0-9a-f]{32}"
    r"|hvs\.[A-Za-z0-9_-]{20,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"
)
MADE_WORDS = (
    "hf_",
    "sk-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "nvapi-",
    "xox",
    "xapp-",
    "akia",
    "asia",
    "aiza",
    "ya29.",
    "gocspx-",
    "npm_",
    "pypi-",
    "dckr_pat_",
    "k_live_",
    "k_test_",
    "gsk_",
    "r8_",
    "dapi",
    "hvs.",
    "sg.",
    "eyj",
)

AZURE = re.compile(r"(?<![\w~.-])(?P<s>[A-Za-z0-9_~.-]{3}8Q~[A-Za-z0-9_~.-]{31,34})")
SLACK_HOOK = re.compile(r"(?<=hooks\.slack\.com/services/)(?P<s>[A-Za-z0-9/]{8,})")
PEM = re.compile(
    r"(?P<s>-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:(?!-----BEGIN).){0,20000}?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"|(?:(?:\s|\\n|\\r)*[A-Za-z0-9+/=]{30,})*))",
    re.S,
)
"""To its end, or as far as lines of base64 go where the end is not there."""
BEARER = re.compile(r"(?i)(?<=bearer )(?P<s>[A-Za-z0-9._~+/=-]{8,})")
BASIC = re.compile(
    r"(?<=[Bb]asic )(?P<s>[A-Za-z0-9+/]{6,}={1,2}"
    r"|(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(?=[A-Za-z+/]*\d)[A-Za-z0-9+/]{12,})"
)

BARE = r"""[^\s"'\\,;)\]}<>|&`]"""
HEADER = re.compile(
    r"(?i)(?<![\w-])(?:(?:proxy-)?authorization|x-api-key|api-key|x-auth-token|x-goog-api-key|private-token"
    r"|x-vault-token|ocp-apim-subscription-key)[\"'\\]*\s*[:=]\s*[\"'\\]*"
    r"(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?"
    rf"(?P<s>(?!(?:bearer|basic|token|digest|negotiate|apikey)\b|[$<{{]){BARE}{{4,}})"
)
COOKIE = re.compile(
    r"(?i)(?<![\w-])(?:set-)?cookie[\"'\\]*\s*:\s*[\"'\\]*(?P<s>[^\s\"'\\<$][^\n\"'\\<]{3,})"
)
URL_USER = re.compile(r"(?<=://)(?P<s>(?!git@|<)[^/\s:@\"'<>$]+(?::[^/\s@\"'<>]*)?)(?=@)")
QUERY = re.compile(
    r"(?i)[?&](?:access_token|auth|token|api_?key|key|sig|signature|password|secret|policy|key-pair-id"
    r"|x-(?:amz|goog)-(?:signature|credential|security-token))=(?P<s>(?![$<{])[^&\s\"'<>#\\]+)"
)
CURL = re.compile(r"(?:\s-u|--user)[ =][\"']?[^\s:\"'$<]+:(?P<s>(?![$<{])[^\s\"'<]+)")
NETRC = re.compile(r"\blogin\s+\S+\s+password\s+(?P<s>(?!<)\S+)")
DOCKER_AUTH = re.compile(r"\"(?:auth|identitytoken)\\?\"\s*:\s*\\?\"(?P<s>[A-Za-z0-9+/=]{8,})\\?\"")

OPTION = re.compile(
    r"(?<![\w-])--[\w.-]*(?:key|token|password|secret)[\"'\\]*(?:\s*,\s*|=|\s+)(?:-\s+)?[\"'\\]*"
    r"(?P<s>(?![-$<{\[/])[^\s\"'\\,\]<>]+(?:[ \t]+(?=\S*\d)(?=\S*[A-Za-z])(?![-$<{\"'])[^\s\"'\\,\]<>:]+)*)"
)
"""Several keys may stand behind --api-key; further words count when they hold letters and digits."""

NAME = (
    r"(?P<name>(?:[A-Za-z0-9]+[_.-])*(?:api[_-]?keys?|access[_-]?key(?:[_-]?id)?|account[_-]?key"
    r"|secret(?:[_-]?(?:access[_-]?)?key)?|client[_-]?secret|private[_-]?key(?:[_-]?id)?"
    r"|(?:auth|signing|encryption|shared[_-]?access|master)[_-]?key"
    r"|(?:access|auth|refresh|bearer|session|client|api|hub|identity)?[_-]?token"
    r"|passw(?:or)?d|passphrase|pwd|credentials?))"
)
SECRET_NAME = re.compile(NAME, re.I)
VALUE = (
    rf"""(?P<s>\\?"(?:[^"\\\n]{{3,}})\\?"|\\?'(?:[^'\\\n]{{3,}})\\?'|(?![\["'\\]){BARE}{{4,}})"""
)
SETTING = re.compile(
    rf"(?i)(?<![A-Za-z0-9_.-]){NAME}(?![A-Za-z0-9_-])\\?[\"']?(?P<sep>[ \t]*(?:=>|=(?!=)|:(?![:/]))[ \t]*){VALUE}"
)
LIST = re.compile(
    rf"(?i)(?<![A-Za-z0-9_.-]){NAME}(?![A-Za-z0-9_-])\\?[\"']?\s*[:=]\s*\[(?P<s>[^\]\n]{{3,}})\]"
)
NAME_VALUE = re.compile(
    rf"(?i)name\\?[\"']?\s*[:=]\s*\\?[\"']?{NAME}\\?[\"']?\s*,?\s*\\?[\"']?value\\?[\"']?\s*[:=]\s*{VALUE}"
)
"""The variables of Kubernetes and of facts: a name and a value each."""

SETTING_WORDS = ("key", "token", "secret", "passw", "passphrase", "pwd", "credential")

VOCABULARY = re.compile(
    r"(?i)(?:^|[_.-])(?:additional|audio|begin|bos|bot|cls|draft|each|end|eos|eot|first|image|input|last"
    r"|mask|max|min|new|next|num|output|pad|per|prompt|sampled|sep|single|special|start|stop|think|tool"
    r"|unk|video)[_-]?token$"
)
CODE = re.compile(
    r"(?i)(?:lambda|none|null|nil|true|false|str|string|int|bool|bytes|optional|union|unset|required"
    r"|disabled|enabled|default|missing|invalid|expected|not|os\.\S*|self\.\S*|args\.\S*|config\.\S*"
    r"|settings\.\S*|env\.\S*|\*+|x{4,}|redacted|\d+(?:\.\d+)*)[:.]?"
)
"""Whole values that are no secret."""

PATH = re.compile(r"(?:~|\.{1,2})?(?:/[\w.@+-]+)+/?")
AWS_LENGTH = 40
"""A secret key of AWS is 40 characters of base64 and may look like a path."""

KUBERNETES_SECRET = re.compile(r"^\s*[\"']?kind[\"']?\s*:\s*[\"']?Secret\b", re.M)
SECRET_DATA = re.compile(
    r"^(?P<indent>[ \t]*)[\"']?(?:data|stringData)[\"']?\s*:[ \t]*\{?[ \t]*\n"
    r"(?P<rows>(?:(?P=indent)[ \t]+\S.*\n?|[ \t]*\n)+)",
    re.M,
)
SECRET_ROW = re.compile(
    r"(?:^|[{,])[ \t]*[\"']?[\w.-]+[\"']?[ \t]*:[ \t]*[\"']?(?P<s>(?![<\"'])[^\s\"',}]+)", re.M
)

USER = re.compile(
    r"(?:(?<=/home/)|(?<=/Users/)|(?<=\\Users\\)|(?<=\\\\Users\\\\))(?P<s>[^/\s:\"'<>\\,;)]+)"
)
MAC = re.compile(
    r"(?<![\w:.-])(?P<s>[0-9A-Fa-f]{2}(?P<sep>[:-])(?:[0-9A-Fa-f]{2}(?P=sep)){4}[0-9A-Fa-f]{2})(?![\w:-])"
)
NO_MAC = re.compile(r"(?:00[:-]){5}00|(?:[fF]{2}[:-]){5}[fF]{2}")
SERIAL = re.compile(
    r"(?i)(?:\bserial(?:[ _-]?(?:number|no\.?))?[\"'\\]*\s*[:=]\s*[\"'\\]*|<serial>\s*)(?P<s>\d{8,16})\b"
)

QUAD_CORE = re.compile(r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}")
BEFORE_IP = re.compile(
    r"(?:://|@|(?<![A-Za-z0-9-])(?:host(?:name)?|addr(?:ess)?|ip|inet|peer|server|client|listen(?:ing)?|node|bind|dns"
    r"|gateway|remote|connect(?:ing|ed|ion)?)(?:[ _](?:ip|addr|address|on|to|from|at))?[\"'\\]*[ \t]*[:=(]?"
    r"[ \t]*[\"'\\(]*)\Z",
    re.I,
)
"""What says that a quad of numbers behind it is an address and no version."""
LOOK_BACK = 40
NEEDS_PORT = re.compile(r":\d{1,5}\b|/\d{1,2}(?![\w.])")
MAC_CORE = re.compile(r"[:-][0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-][0-9A-Fa-f]{2}[:-]")
SIX_CORE = re.compile(r":[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{1,4}")
IP_SIX = re.compile(
    r"(?<![\w:.])(?P<s>(?:2[0-9a-f]{3}|3[0-9a-f]{3}|f[cd][0-9a-f]{2}|fe80)(?::[0-9a-f]{0,4}){2,7})(?![\w:])",
    re.I,
)

HOST_FORMS = re.compile(
    r"(?<![\w.-])(?P<s>ip-\d{1,3}(?:-\d{1,3}){3}(?:\.[a-z0-9-]+)*"
    r"|[a-z0-9][\w-]*(?:\.[\w-]+)*\.(?:(?:compute|ec2)(?:-\d)?\.internal|c\.[a-z0-9-]+\.internal"
    r"|svc\.cluster\.local|home\.arpa|intranet))(?![\w-])",
    re.I,
)
HOST_WORDS = ("ip-", ".internal", "cluster.local", "home.arpa", ".intranet")
SYSLOG = re.compile(
    r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)) "
    r"(?P<s>(?!<)[\w.-]+) [\w./@-]+(?:\[\d+\])?: ",
    re.M,
)
PROMPT = re.compile(r"^(?:\([^)\n]+\) ?)?[a-z_][\w.-]*@(?P<s>[\w.-]+):[^\n$#]*[$#] ", re.M)
"""user@host:folder$ of a shell session that was copied."""

EMAIL = re.compile(
    r"(?<![\w.+@:/-])(?P<s>(?!git@)[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,})(?![\w.@-]*[=:/])"
)

FORMS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    ("token", MADE_WORDS, MADE),
    ("token", ("8q~",), AZURE),
    ("token", ("hooks.slack.com",), SLACK_HOOK),
    ("token", ("bearer ",), BEARER),
    ("token", ("authorization", "-key:", "-token:", '-key"', '-token"'), HEADER),
    ("credentials", ("basic ",), BASIC),
    ("token", ("cookie",), COOKIE),
    ("credentials", ("://",), URL_USER),
    (
        "token",
        (
            "token=",
            "key=",
            "sig=",
            "signature=",
            "auth=",
            "password=",
            "secret=",
            "policy=",
            "key-pair-id=",
            "credential=",
        ),
        QUERY,
    ),
    ("credentials", ("curl",), CURL),
    ("credentials", ("password",), NETRC),
    ("credentials", ('"auth', '"identitytoken'), DOCKER_AUTH),
    ("token", ("key", "token", "password", "secret"), OPTION),
    ("user", ("/home/", "/users/", "\\users\\"), USER),
    ("serial", ("serial",), SERIAL),
    ("host", HOST_WORDS, HOST_FORMS),
    ("host", ("]: ", "kernel: "), SYSLOG),
    ("host", ("@",), PROMPT),
    ("email", ("@",), EMAIL),
)

SHORT = 2000
"""Characters up to which a text is looked at as a whole."""

LINES_BELOW = 2
"""A name may stand above its value."""


def mask(text: str, replace: Replace) -> str:
    """The text with everything of a known form replaced."""
    lowered = text.lower()
    if "private key" in lowered:
        text = PEM.sub(partial(_whole, "key", replace), text)
        lowered = text.lower()
    if "secret" in lowered and "kind" in lowered and KUBERNETES_SECRET.search(text):
        text = _kubernetes_secrets(text, replace)
        lowered = text.lower()
    present = [form for form in FORMS if any(word in lowered for word in form[1])]
    words = {word for form in present for word in form[1]}
    words |= {word for word in SETTING_WORDS if word in lowered}
    if words:
        text = _on_lines(text, lowered, words, partial(_lines, present, replace))
    if MAC_CORE.search(text):
        text = MAC.sub(partial(_mac, replace), text)
    if QUAD_CORE.search(text):
        text = QUAD_CORE.sub(partial(_address, replace), text)
    if SIX_CORE.search(text):
        text = IP_SIX.sub(partial(_six, replace), text)
    return text


def _on_lines(text: str, lowered: str, words: set[str], change: Callable[[str], str]) -> str:
    """Change only the lines that hold a word and those below: most of a long text holds none."""
    if len(text) <= SHORT or len(lowered) != len(text):
        return change(text)
    spans: list[tuple[int, int]] = []
    for word in words:
        place = lowered.find(word)
        while place >= 0:
            start, end = text.rfind("\n", 0, place) + 1, place
            for _ in range(LINES_BELOW + 1):
                end = text.find("\n", end + 1)
                if end < 0:
                    end = len(text)
                    break
            spans.append((start, end))
            place = lowered.find(word, max(text.find("\n", place), place + 1))
    parts: list[str] = []
    done = 0
    for start, end in _merged(spans):
        parts += [text[done:start], change(text[start:end])]
        done = end
    return "".join([*parts, text[done:]])


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _lines(
    forms: list[tuple[str, tuple[str, ...], re.Pattern[str]]], replace: Replace, text: str
) -> str:
    lowered = text.lower()
    for kind, words, pattern in forms:
        if any(word in lowered for word in words):
            text = pattern.sub(partial(_whole, kind, replace), text)
    if any(word in lowered for word in SETTING_WORDS):
        text = LIST.sub(partial(_list, replace), text)
        if "value" in lowered:
            text = NAME_VALUE.sub(partial(_setting, replace), text)
        text = SETTING.sub(partial(_setting, replace), text)
    return text


def _kubernetes_secrets(text: str, replace: Replace) -> str:
    """The values of Secret objects, document by document."""
    return "".join(
        SECRET_DATA.sub(partial(_kubernetes, replace), part)
        if KUBERNETES_SECRET.search(part)
        else part
        for part in re.split(r"(?m)^(?=---)", text)
    )


def _put(match: re.Match[str], new: str) -> str:
    """The whole match with its group `s` replaced."""
    whole, start = match[0], match.start()
    return whole[: match.start("s") - start] + new + whole[match.end("s") - start :]


def _whole(kind: str, replace: Replace, match: re.Match[str]) -> str:
    return _put(match, replace(kind, match["s"]))


def _setting(replace: Replace, match: re.Match[str]) -> str:
    written = match["s"]
    before = re.match(r"\\?[\"']?", written)
    quote = before[0] if before else ""
    value = written[len(quote) : len(written) - len(quote)] if quote else written
    if VOCABULARY.search(match["name"]) or not is_secret(value):
        return match[0]
    if not quote and not _certain(match, value):
        return match[0]
    return _put(match, f"{quote}{replace('token', value)}{quote}")


def names_secret(name: str) -> bool:
    """Whether a setting or variable of this name holds a secret."""
    return bool(SECRET_NAME.fullmatch(name)) and not VOCABULARY.search(name)


def is_secret(value: str) -> bool:
    """Whether the value of a secret's name is one: no reference, no word of code, no path, no mask."""
    if value.startswith(("<", "$", "{", "%(")) or CODE.fullmatch(value) or "(" in value:
        return False
    return not (PATH.fullmatch(value) and value.count("/") > 1 and len(value) != AWS_LENGTH)


def _certain(match: re.Match[str], value: str) -> bool:
    """Without quotes: a setting of its own, or something that no sentence or program would hold.

    `token: punctuation` within a sentence and `token = tokenizer.decode` of a program are none.
    """
    random = bool(re.search(r"\d", value)) or len(value) >= 20
    sep = match.groupdict().get("sep")
    if sep is None or random:
        return True
    line = match.string[match.string.rfind("\n", 0, match.start()) + 1 : match.start()]
    first = not line.strip(" \t-\"'#") or line.rstrip().endswith(("{", ",", "export", "-e", "env"))
    if sep.strip() == "=":
        return sep == "=" or (
            first and not re.fullmatch(r"[A-Za-z_]+(?:\.[A-Za-z_]+)+:?|[a-z_]+", value)
        )
    return first


def _list(replace: Replace, match: re.Match[str]) -> str:
    def one(item: re.Match[str]) -> str:
        return replace("token", item[0]) if is_secret(item[0]) else item[0]

    if VOCABULARY.search(match["name"]):
        return match[0]
    return _put(match, re.sub(r"[^\s\"'\\,]{3,}", one, match["s"]))


def _kubernetes(replace: Replace, match: re.Match[str]) -> str:
    rows = SECRET_ROW.sub(partial(_whole, "token", replace), match["rows"])
    return match[0][: match.start("rows") - match.start()] + rows


def _mac(replace: Replace, match: re.Match[str]) -> str:
    return match[0] if NO_MAC.fullmatch(match["s"]) else _put(match, replace("mac", match["s"]))


def _address(replace: Replace, match: re.Match[str]) -> str:
    """A quad is an address behind a word that says so, or before a port or a mask; else a version."""
    text, start, end = match.string, match.start(), match.end()
    if (
        text[end : end + 1] == "."
        or text[end : end + 1].isalnum()
        or text[start - 1 : start] in (*".",)
    ):
        return match[0]
    before = text[max(0, start - LOOK_BACK) : start]
    if before[-1:].isalnum() or before[-1:] == "_":
        return match[0]
    alone = before[-1:] not in ("<", ">", "~", "-", "=") and NEEDS_PORT.match(text, end)
    if alone or BEFORE_IP.search(before):
        return replace("ip", match[0])
    return match[0]


def _six(replace: Replace, match: re.Match[str]) -> str:
    import ipaddress  # only where something looks like one

    try:
        ipaddress.IPv6Address(match["s"])
    except ValueError:
        return match[0]
    return _put(match, replace("ip", match["s"]))
