"""Secrets, names and addresses by the form in which they stand in any text: logs, YAML, JSON, code.

Each form has words, one of which is in every text that it matches (a search for a word is much faster
than for a pattern), and a pattern whose group `s` is what must go. Tokens of a maker's form are in
`secret_tokens`, names and addresses in `secret_names`; settings are found by their name. What is only
a reference (`$HF_TOKEN`), a word of code (`lambda:`) or a token of a vocabulary (`eos_token`) stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from infer_doctor.late import Late
from infer_doctor.secret_names import (
    EMAIL,
    GUID,
    HOST_FORMS,
    HOST_WORDS,
    NCCL,
    PROMPT,
    PROMPT_USER,
    SERIAL,
    SYSLOG,
    USER,
    USER_FOLDER,
    USER_VARIABLE,
    mask_addresses,
)
from infer_doctor.secret_tokens import (
    AZURE,
    CRYPT,
    CRYPT_WORDS,
    HOOK,
    MADE,
    MADE_WORDS,
    PEM,
    TELEGRAM,
)

Replace = Callable[[str, str], str]
"""(kind, value) -> what stands there instead."""

Forms = tuple[tuple[str, tuple[str, ...], Late], ...]

BEARER = Late(r"(?i)(?<=bearer )(?P<s>[A-Za-z0-9._~+/=-]{8,})")
BASIC = Late(
    r"(?<=[Bb]asic )(?P<s>[A-Za-z0-9+/]{6,}={1,2}"
    r"|(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(?=[A-Za-z+/]*\d)[A-Za-z0-9+/]{12,})"
)

BARE = r"""[^\s"'\\,;)\]}<>|&`]"""
HEADER_NAME = (
    r"(?:(?:proxy-)?authorization|x-api-key|api-key|x-auth-token|x-goog-api-key|private-token"
    r"|x-vault-token|ocp-apim-subscription-key)"
)
SCHEME = r"(?:bearer|basic|token|digest|negotiate|apikey)"
HEADER = Late(
    rf"(?i)(?<![\w-]){HEADER_NAME}[\"'\\]*\s*[:=]\s*(?:b(?=[\"']))?[\"'\\]*(?:{SCHEME}\s+)?"
    rf"(?P<s>(?!{SCHEME}\b|[$<{{]){BARE}{{4,}})"
)
HEADER_PAIR = Late(
    rf"(?i)[(\[]\s*b?[\"']{HEADER_NAME}[\"']\s*,\s*b?[\"'](?:{SCHEME}\s+)?(?P<s>(?!content-|accept|origin|x-|[$<{{]){BARE}{{4,}})[\"']\s*[)\]]"
)
"""As frameworks hold them: (b"x-api-key", b"...")."""
COOKIE = Late(
    r"(?i)(?:(?<![\w-])(?:set-)?cookie[\"'\\]*\s*:\s*[\"'\\]*|\bcurl\b[^\n|;]*?\s(?:-b|--cookie)[ =][\"']?)"
    r"(?P<s>[^\s\"'\\<$][^\n\"'\\<]{3,})"
)
URL_USER = Late(
    r"(?<=://)(?P<s>(?!git@|<|@)(?:[^/\s:@\"'<>$]*:(?!\d{1,5}(?:[/?#\s]|$))(?![$<{])[^\s\"'<>|]*?"
    r"|[^/\s:@\"'<>$]+)(?::[^/\s@\"'<>]*)?)(?=@[\w.\[-]+(?:[:/?,\s\"']|$))"
)
"""name:password before the last @ of a URL; a password may hold what it should not, / and @."""
QUERY = Late(
    r"(?i)(?:[?&]|%26|%3F)(?:(?:access|auth|hf|id|refresh|session)_token|auth|token|api_?key|key|sig|signature"
    r"|password|secret|policy|key-pair-id|(?:subscription|api)-key"
    r"|x-(?:amz|goog)-(?:signature|credential|security-token))(?:=|%3D)(?P<s>(?![$<{])[^&\s\"'<>#\\]+)"
)
QUERY_WORDS = (
    *(f"{word}{equals}" for equals in ("=", "%3d") for word in ("token", "key", "password")),
    *("sig=", "signature=", "auth=", "secret=", "policy=", "key-pair-id=", "credential="),
)
CURL = Late(r"(?:\s-u|--user)[ =][\"']?[^\s:\"'$<]+:(?P<s>(?![$<{])[^\s\"'<]+)")
NETRC = Late(r"\b(?:login|machine)\s+\S+\s+password\s+(?P<s>(?!<)\S+)")
DOCKER_AUTH = Late(r"\"(?:auth|identitytoken)\\?\"\s*:\s*\\?\"(?P<s>[A-Za-z0-9+/=]{8,})\\?\"")

WORD = r"""(?P<q>["']?)(?P<s>(?![-$<{"'])[^\s"'<]+|(?<=["'])(?![-$<{])[^"'\n<]+)(?P=q)"""
COMMAND = Late(
    r"(?:\b(?:docker|podman|nerdctl|helm|oras|crane|skopeo)\s+(?:\S+\s+)?login\b[^\n|;&]*?\s-p[ =]?"
    r"|\bsshpass\s+-p[ ]?|\bmysql(?:dump|admin)?\b[^\n|;&]*?\s-p|\bredis-cli\b[^\n|;&]*?\s(?:-a|--pass)[ =]"
    r"|\bwandb\s+login\s+(?:--(?:relogin|verify|cloud)\s+)*|--from-literal[ =][\"']?[\w.-]+="
    r"|\bmc\s+alias\s+set\s+\S+\s+\S+\s+\S+\s+|\brequirepass\s+|\bSetCredential=[\w.-]+:)" + WORD
)
"""Programs that take a secret where its name does not stand."""
COMMAND_WORDS = ("login", "sshpass", "mysql", "redis-cli", "from-literal", "alias set")

OPTION = Late(
    r"(?<![\w-])--(?!max[-_])[\w.-]*(?:key|token|password|secret)[\"'\\]*(?:\s*,\s*|=|\s+)(?:-\s+)?[\"'\\]*"
    r"(?P<s>(?![-$<{\[/])[^\s\"'\\,\]<>]+(?:[ \t]+(?=\S*\d)(?=\S*[A-Za-z])(?![-$<{\"'])[^\s\"'\\,\]<>:]+)*)"
)
"""Several keys may stand behind --api-key; further words count when they hold letters and digits."""

CAMEL = r"(?:(?-i:[a-z][A-Za-z0-9]*(?=[A-Z])))?"
"""The beginning of a name such as hfToken."""
NAME = (
    rf"(?P<name>(?:[A-Za-z0-9]+[_.-])*{CAMEL}(?:api[_ -]?keys?|access[_ -]?key(?:[_-]?id)?|account[_-]?key"
    r"|secret(?:[_-]?(?:access[_-]?)?key(?:_base)?)?|client[_-]?secret|private[_-]?key(?:[_-]?id)?"
    r"|(?:auth|signing|encryption|shared[_-]?access|master)[_-]?key"
    r"|(?:access|auth|refresh|bearer|session|client|api|hub|identity)?[_-]?token"
    r"|(?:pg|mysql|redis|db)?passw(?:or)?d|passphrase|pwd|credentials?))"
)
SECRET_NAME = Late(NAME, re.I)
BEFORE = r"(?:(?<![A-Za-z0-9_.-])|(?<=\\[nrt]))"
QUOTE = r"\\*[\"']?"
VALUE = (
    r"""(?P<s>\\*"(?:[^"\\\n]{3,})\\*"|\\*'(?:[^'\\\n]{3,})\\*'|(?![\["'\\])"""
    rf"{BARE}{{4,}})"
)
SEP = r"(?P<sep>[ \t]*(?:=>|=(?!=)|:(?![:/]))[ \t]*)"
YAML = r"(?:[&!](?-i:[\w!]+)[ \t]+)*"
"""Anchors and tags before a value."""
SETTING = Late(rf"(?i){BEFORE}{NAME}(?![A-Za-z0-9_-])(?:\\*[\"']\]?)?{SEP}{YAML}(?:\"\")?{VALUE}")
SPOKEN = Late(
    r"(?i)\b(?P<name>(?:api|access)[ -]key|(?:user|auth|access|bearer|hf|hub|your)[ -]token|password|passphrase"
    r"|token(?= (?:passed|provided|supplied|received|used)))s?"
    r"(?: (?:passed|provided|supplied|received|used|given|is|was))?[ ]?(?P<sep>:?)[ ]"
    r"(?P<s>[\"'`]?(?=[\w.~+/=-]*\d)(?=[\w.~+/=-]*[A-Za-z])[\w.~+/=-]{7,}[\"'`]?)(?![\w(-])"
)
"""Sentences of programs that repeat the key which they refuse: letters and digits."""
VARIABLE = Late(
    r"(?<![A-Za-z0-9_])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*(?<!_CACHE)(?<!_SORT)(?<!_HASH)(?<!_PRIMARY)_(?:KEY|AUTH|PASS)"
    r"[\"']?(?:=|:[ ]?)[\"']?(?P<s>(?=[^\s\"']*\d)(?=[^\s\"']*[A-Za-z])(?![/~$<{.])[^\s\"'\\,;)\]}<>|&`]{8,})"
)
"""OPENAI_KEY=..., DB_PASS: ...; with letters and digits, for many constants of programs end so too."""
CALL = Late(
    rf"(?i)(?:setdefault|putenv|setenv|setattr|add_header)\(\s*(?:\w+\s*,\s*)?[\"']{NAME}[\"']\s*,\s*{VALUE}"
)
SHELL = Late(rf"(?i)\b(?:setenv|set[ \t]+-[a-z]*x[a-z]*|(?-i:ENV))[ \t]+{NAME}[ \t]+{VALUE}")
"""csh, fish and old Dockerfiles write no equals sign."""
LIST = Late(
    rf"(?i){BEFORE}{NAME}(?![A-Za-z0-9_-]){QUOTE}\s*[:=]\s*(?:\[|\((?=[\"']))(?P<s>[^\])\n]{{3,}})[\])]"
)
BELOW = Late(
    rf"(?i){BEFORE}{NAME}[\"']?:[ \t]*(?:[>|][+-]?[ \t]*\n(?P<s>[ \t]+\S+)(?=\s|$)"
    r"|\n(?P<rows>(?:[ \t]*-[ \t]+[^\s:#]+[ \t]*(?:\n|$))+))"
)
"""A YAML value in the lines below its name, folded or as a list."""
NOTHING_BESIDE = Late(r":[ \t]*(?:[>|][+-]?[ \t]*)?\n")
NAME_VALUE = Late(
    rf"(?i)name{QUOTE}\s*[:=]\s*{QUOTE}{NAME}{QUOTE}\s*,?\s*{QUOTE}value{QUOTE}\s*[:=]\s*{VALUE}"
)
"""The variables of Kubernetes and of facts: a name and a value each."""

SETTINGS: tuple[tuple[tuple[str, ...], Late], ...] = (
    (("setdefault", "putenv", "setenv", "setattr", "add_header"), CALL),
    (("setenv", "set -", "env "), SHELL),
    ((), SETTING),
    ((" key", "-key", " token", "token ", "password", "passphrase"), SPOKEN),
)

SETTING_WORDS = ("key", "token", "secret", "passw", "passphrase", "pwd", "credential")

VOCABULARY = Late(
    r"(?:^|[_.-]|(?<=[a-z])(?=[A-Z]))(?i:additional|audio|begin|bos|bot|cls|draft|each|end|eos|eot|first|image"
    r"|input|last|mask|max|min|new|next|num|output|pad|per|prompt|sampled|sep|single|special|start|stop|think"
    r"|tool|unk|video)[_-]?(?i:token)$"
)
WORDS = (
    r"(?:lambda|none|null|nil|true|false|str|string|int|bool|bytes|optional|union|unset|required"
    r"|disabled|enabled|default|missing|invalid|expected|not|os\.\S*|self\.\S*|args\.\S*|config\.\S*"
    r"|settings\.\S*|env\.\S*|\*+|x{4,}|redacted|!!\w+)[:.]?"
)
NO_VALUE = Late(WORDS, re.I)
CODE = Late(rf"{WORDS}|\d+(?:\.\d+)*[:.]?", re.I)
"""Whole values that are no secret."""

PATH = Late(r"(?:~|\.{1,2})?(?:/[\w.@+-]+)+/?")
AWS_LENGTH = 40
"""A secret key of AWS is 40 characters of base64 and may look like a path."""

FORMS: Forms = (
    ("token", MADE_WORDS, MADE),
    ("token", ("8q~",), AZURE),
    ("token", ("hooks.slack.com", "/api/webhooks/"), HOOK),
    ("token", (":aa",), TELEGRAM),
    ("token", CRYPT_WORDS, CRYPT),
    ("token", ("bearer ",), BEARER),
    ("token", ("authorization", "-key", "-token"), HEADER),
    ("token", ("authorization", "-key", "-token"), HEADER_PAIR),
    ("credentials", ("basic ",), BASIC),
    ("token", ("cookie", "curl"), COOKIE),
    ("credentials", ("://",), URL_USER),
    ("token", QUERY_WORDS, QUERY),
    ("credentials", ("curl",), CURL),
    ("credentials", ("password",), NETRC),
    ("credentials", ('"auth', '"identitytoken'), DOCKER_AUTH),
    ("token", (*COMMAND_WORDS, "requirepass", "setcredential="), COMMAND),
    ("token", ("key", "token", "password", "secret"), OPTION),
    ("token", ("_key", "_auth", "_pass"), VARIABLE),
    ("user", ("/home/", "/users/", "\\users\\"), USER),
    ("user", ("/users/", "~"), USER_FOLDER),
    ("user", ("user=", "user:", 'user":', "username", "logname"), USER_VARIABLE),
    ("serial", ("serial",), SERIAL),
    ("mac", ("guid",), GUID),
    ("host", HOST_WORDS, HOST_FORMS),
    ("host", ("]: ", "kernel: "), SYSLOG),
    ("host", (" nccl ",), NCCL),
    ("user", ("@",), PROMPT_USER),
    ("host", ("@",), PROMPT),
    ("email", ("@",), EMAIL),
)

ALL_WORDS = tuple(dict.fromkeys((*SETTING_WORDS, *(word for form in FORMS for word in form[1]))))
"""Looked for one by one: most texts hold none, and to ask each form takes ten times as long."""

SHORT = 2000
"""Characters up to which a text is looked at as a whole."""

LINES_BELOW = 3
"""A name may stand above its value."""


def mask(text: str, replace: Replace) -> str:
    """The text with everything of a known form replaced."""
    lowered = text.lower()
    if "private key" in lowered:
        text = PEM.sub(partial(_whole, "key", replace), text)
        lowered = text.lower()
    if "secret" in lowered and "kind" in lowered:
        from infer_doctor.secret_objects import mask_objects  # only where there is one

        text = mask_objects(text, replace)
        lowered = text.lower()
    if found := {word for word in ALL_WORDS if word in lowered}:
        present = [form for form in FORMS if not found.isdisjoint(form[1])]
        words = {word for form in present for word in form[1]} | found.intersection(SETTING_WORDS)
        text = _on_lines(text, lowered, words, partial(_lines, tuple(present), replace))
    return mask_addresses(text, lambda kind, match: _whole(kind, replace, match))


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


def _lines(forms: Forms, replace: Replace, text: str) -> str:
    lowered = text.lower()
    for kind, words, pattern in forms:
        if any(word in lowered for word in words):
            text = pattern.sub(partial(_whole, kind, replace), text)
    if any(word in lowered for word in SETTING_WORDS):
        text = LIST.sub(partial(_list, replace), text)
        if NOTHING_BESIDE.search(text):
            text = BELOW.sub(partial(_below, replace), text)
        if "value" in lowered:
            text = NAME_VALUE.sub(partial(_setting, replace), text)
        for words, pattern in SETTINGS:
            if not words or any(word in lowered for word in words):
                text = pattern.sub(partial(_setting, replace), text)
    return text


def _put(match: re.Match[str], new: str) -> str:
    """The whole match with its group `s` replaced."""
    whole, start = match[0], match.start()
    return whole[: match.start("s") - start] + new + whole[match.end("s") - start :]


def _whole(kind: str, replace: Replace, match: re.Match[str]) -> str:
    if kind == "token" and NO_VALUE.fullmatch(match["s"]):
        return match[0]
    return _put(match, replace(kind, match["s"]))


def _setting(replace: Replace, match: re.Match[str]) -> str:
    written = match["s"]
    before = re.match(r"\\*[\"'`]?", written)
    quote = before[0] if before else ""
    value = written[len(quote) : len(written) - len(quote)] if quote else written
    if VOCABULARY.search(match["name"]) or not is_secret(value):
        return match[0]
    if match["name"].lower().endswith("pwd") and value.startswith(("/", "~", "\\")):
        return match[0]  # the folder in which a program runs
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
    return _items(replace, match["name"], match, "s")


def _below(replace: Replace, match: re.Match[str]) -> str:
    return _items(replace, match["name"], match, "s" if match["s"] else "rows")


def _items(replace: Replace, name: str, match: re.Match[str], group: str) -> str:
    """Each word of a group is a secret."""

    def one(item: re.Match[str]) -> str:
        return replace("token", item[0]) if is_secret(item[0]) else item[0]

    if VOCABULARY.search(name):
        return match[0]
    whole, start = match[0], match.start()
    new = re.sub(r"[^\s\"'\\,]{3,}", one, match[group])
    return whole[: match.start(group) - start] + new + whole[match.end(group) - start :]
