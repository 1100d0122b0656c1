"""Masks for what must not leave the machine: secrets, host and user names, addresses.

A `Redactor` is made from the captures of one run and masks captures and reports alike, so that a
replayed snapshot gives the very report of the live run. Masks are typed and numbered in the order
of first appearance: `<host:1>`, `<token:2>`, `<user:1>`, `<ip:1.2>` (subnet 1, address 2). The home
folder of the user who runs the doctor becomes `~`, so that commands can still be copied.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from infer_doctor import secret_forms
from infer_doctor.host import Capture
from infer_doctor.model import Redaction
from infer_doctor.texts_within import is_command, texts_within

SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASS|PASSWORD|PASSWD|CREDENTIALS?|AUTH|(?:API)?KEY)(?:_(?!PATH|FILE|DIR)|$)",
    re.I,
)
"""Environment variables whose whole value is a secret: HF_TOKEN, VLLM_API_KEY, but neither
VLLM_MAX_TOKENS nor HF_TOKEN_PATH."""

SHORTEST_USER = 3
"""Characters; a shorter name may be a folder of anybody's."""

SHORTEST_SECRET = 8
"""Characters; a shorter value or a number is masked where it is set, not wherever else it stands."""

MOST_EXACT = 200
"""Values that are looked for in every text, wherever they stand; further ones of a log, where each
request may have its own, only as whole words: a search for each of 30,000 would take hours."""

MANY, TOGETHER = 1000, 16
"""From so many captures on, those of a cluster, so many are looked at together: few hold anything."""

WIDE = 64
"""Parts of a list or object from which on it is first looked at as a whole: see `touches`."""

WORD = re.compile(r"[A-Za-z0-9_~.+/-]{8,}")

ADDRESS_NAME = re.compile(r"(?:^|_)(?:IP|ADDR|ADDRESS|HOST|URL|PROXY|ENDPOINT)(?:$|_)", re.I)
"""Environment variables whose value may name other machines."""

ADDRESS = re.compile(r"(?<![\w.])\d+\.\d+\.\d+\.\d+(?![\w.])")

LONG_ADDRESS = re.compile(r"(?<![\w:.])[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F.]*(?![\w:])")
"""What may be an address of version 6; only known ones are masked."""

NETWORK = ("interfaces", "own_name")
"""Operations whose answers hold addresses."""

USERINFO = re.compile(r"(?:(?<=://)|^)[^/\s:@]+:[^/\s@]+(?=@)")
"""name:password of a proxy, also of one written without a scheme."""

SECRET_OPTION = re.compile(
    r"--(?!max[-_])[\w.-]*(?:key|token|password|secret)(?:=(.*))?", re.I | re.S
)
"""Options whose values are secrets: --api-key, --hf-token, --ssl-keyfile-password; not --max-tokens, nor
its short forms such as --max-num-batched-token.
What ends in "keyfile" names a file."""

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)

JOINED_VARIABLE = re.compile(
    r"(-e(?:[A-Za-z]\w*_)?(?:TOKEN|SECRET|PASS|PASSWORD|PASSWD|AUTH|(?:API_?)?KEY))=.*", re.I | re.S
)
"""docker run -eHF_TOKEN=..."""

PUBLIC_HOSTS = re.compile(
    r"(?i)(?:[\w.-]*\.)?(?:localhost|huggingface\.co|hf-mirror\.com|hf\.co|github\.com|githubusercontent\.com"
    r"|pypi\.org|pytorch\.org|nvidia\.com|nvcr\.io|docker\.(?:io|com)|quay\.io|ghcr\.io|modelscope\.cn"
    r"|openai\.com|anaconda\.(?:org|com))|(?:cluster\.)?local|svc|internal|auto|none|all|any|true|false|on|off"
)
"""Names that everybody knows, and words that are no names."""

HOST_IN_VALUE = re.compile(
    r"(?:(?<=^)|(?<=://)|(?<=@)|(?<=,)|(?<=\s)|(?<=^\.)|(?<=,\.))[A-Za-z][\w-]*(?:\.[\w-]+)*(?=$|[:/,\s])"
)
"""A host in the value of a variable that names machines: alone, in a URL, in a list."""

URL_SCHEME = re.compile(r"[A-Za-z][\w+.-]*(?=://)")

POD_VARIABLES = ("HOSTNAME", "POD_NAME", "NODE_NAME", "SLURMD_NODENAME")
NODE_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_TOPOLOGY_ADDR")
USER_VARIABLES = ("USER", "LOGNAME", "SLURM_JOB_USER")

SHORT = 200
"""Characters of a text that may come again."""

KEPT = 100_000
"""Such texts that are remembered: some 10 MB."""


class Redactor:
    """The masks of one run; those made with a `key` are equal in every run with that key."""

    def __init__(self, captures: Iterable[Capture], *, key: str | None = None) -> None:
        self._key = key
        self._masks: dict[tuple[str, str], str] = {}
        self._subnets: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self._exact: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self._host: re.Pattern[str] | None = None
        self._host_names: set[str] = set()
        self._home: re.Pattern[str] | None = None
        self._user: re.Pattern[str] | None = None
        self._formless: set[str] = set()
        """Texts that hold no known form: names of fields, most values, again in each machine's."""
        kept = list(captures)
        for capture in kept:
            self._learn(capture)
        parts = [[capture.arguments, capture.value, capture.error] for capture in kept]
        if len(parts) <= MANY:
            for part in parts:
                self._number([part])
        else:
            for start in range(0, len(parts), TOGETHER):
                self._number(parts[start : start + TOGETHER])

    def _number(self, parts: Sequence[object]) -> None:
        """Number what is found by its form, in order.

        One look at the whole is faster than one at each of thousands of strings.
        """
        if not self.touches(parts):
            return
        if len(parts) == 1:
            self.value(parts[0])
            return
        for part in parts:
            self._number([part])

    @property
    def redactions(self) -> tuple[Redaction, ...]:
        """How many different values of each kind were masked, by kind."""
        kinds = [kind for kind, _ in self._masks]
        return tuple(Redaction(kind=kind, count=kinds.count(kind)) for kind in sorted(set(kinds)))

    def text(self, text: str) -> str:
        """The text with everything masked."""
        return self._masked(text, self._mask)

    def _masked(self, text: str, mask: Callable[[str, str], str]) -> str:
        for value in sorted(self._exact, key=len, reverse=True):
            text = text.replace(value, self._exact[value])
        if self._words:
            text = WORD.sub(lambda match: self._words.get(match[0], match[0]), text)
        if self._home is not None:
            text = self._home.sub(self._home_mask, text)
        if self._user is not None:
            text = self._user.sub(partial(_replace, mask, "user"), text)
        if text not in self._formless:
            before = text
            text = secret_forms.mask(text, self._form if mask == self._mask else mask)
            if text == before and len(text) <= SHORT and len(self._formless) < KEPT:
                self._formless.add(text)
        if self._host is not None:
            text = self._host.sub(partial(_replace, mask, "host"), text)
        if self._subnets:
            text = ADDRESS.sub(self._known_address, text)
            if "::" in text or text.count(":") >= 7:
                text = LONG_ADDRESS.sub(self._known_address, text)
        return text

    def touches(self, value: object) -> bool:
        """Whether masking may change anything in a value, by one look at the whole of it."""
        lines: list[str] = []
        texts_within(value, "", lines)
        text = "\n".join(lines)
        if "hostname" in text or any(secret in text for secret in self._exact):
            return True
        return self._masked(text, _any_mask) != text

    def value(self, value: Any) -> Any:
        """JSON with every string masked, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            if len(value) > WIDE and not self.touches(value):
                return value
            masked = {self.text(key): self._item(key, item, value) for key, item in value.items()}
            if isinstance(name := value.get("hostname"), str):
                masked["hostname"] = self._mask("host", name)
            return masked
        if isinstance(value, (list, tuple)):
            return self._items(without_secrets(value) if is_command(value) else value)
        return value

    def _items(self, items: Sequence[Any]) -> list[Any]:
        """The items masked; of a long list only the halves that hold something are gone through."""
        if len(items) <= WIDE:
            return [self.value(item) for item in items]
        if not self.touches(items):
            return list(items)
        middle = len(items) // 2
        return self._items(items[:middle]) + self._items(items[middle:])

    def _item(self, key: object, item: Any, row: dict[Any, Any]) -> Any:
        """The value of a key, masked whole where its name says that it is a secret."""
        name = row.get("name") if key == "value" else key
        if isinstance(item, str) and isinstance(name, str):
            if name.lower() == "serial" and item.isdigit():
                return self._mask("serial", item)
            if secret_forms.names_secret(name) and secret_forms.is_secret(item):
                return self._mask("token", item)
        return self.value(item)

    def learn_secret(self, value: str) -> None:
        """Mask this value wherever it stands, as a server may say it back; a short one is left."""
        if len(value) >= SHORTEST_SECRET and not value.isdigit():
            self._exact[value] = self._mask("token", value)

    def learn(self, text: str) -> None:
        """Number what a file that will be masked holds, so that it is masked elsewhere too.

        What stands under a secret's name in one file may stand in a line of another.
        """

        def found(kind: str, value: str) -> str:
            known = self._form(kind, value)
            if kind in ("token", "credentials") and known != value:
                word = value.partition(":")[2] or value if kind == "credentials" else value
                if len(word) >= SHORTEST_SECRET and not word.isdigit():
                    few = len(self._exact) < MOST_EXACT
                    (self._exact if few else self._words).setdefault(word, known)
            return known

        secret_forms.mask(text, found)

    def capture(self, capture: Capture) -> Capture:
        """The capture as it may be written to a file."""
        value = capture.value
        if capture.operation in NETWORK and value is not None:
            value = self._network(value)
        if capture.operation == "environ" and value is not None:
            variables = _strings(value.get("variables"))
            value = {"variables": {k: self._variable(k, v) for k, v in variables.items()}}
        return replace(
            capture,
            arguments=self.value(capture.arguments),
            value=self.value(value),
            error=self.value(capture.error),
        )

    def _learn(self, capture: Capture) -> None:
        if capture.value is None:
            return
        if capture.operation == "identity" and isinstance(
            name := capture.value.get("hostname"), str
        ):
            self._learn_host(name)
        if capture.operation == "environ":
            self._learn_variables(_strings(capture.value.get("variables")))
        if capture.operation in NETWORK:
            self._network(capture.value)

    def _network(self, value: Any) -> Any:
        """The answer of an operation on the network: each text that is an address is masked."""
        if isinstance(value, str):
            return self._address(value)
        if isinstance(value, dict):
            return {key: self._network(item) for key, item in value.items()}
        return [self._network(item) for item in value] if isinstance(value, list) else value

    def _learn_host(self, name: str) -> None:
        """Mask the host name everywhere, if it cannot be an ordinary word of a path or version."""
        short = name.partition(".")[0]
        self._mask("host", name)
        names = {form for form in (name, short) if re.search(r"[0-9.-]", form) and len(form) > 3}
        if names and not name.startswith("<"):
            self._host_names |= names
            words = "|".join(re.escape(n) for n in sorted(self._host_names, key=len, reverse=True))
            self._host = re.compile(rf"(?<![\w.-])(?:{words})(?![\w-]|\.\w)")
            for form in names:
                self._remember("host", form, self._masks["host", name])

    def _learn_variables(self, variables: dict[str, str]) -> None:
        home = variables.get("HOME", "").rstrip("/")
        if home.count("/") >= 2:  # /root names nobody
            self._home = re.compile(rf"{re.escape(home)}(?![\w.-])")
        user = variables.get("USER") or variables.get("LOGNAME") or ""
        if len(user) >= SHORTEST_USER and user != "root" and not user.startswith("<"):
            self._user = re.compile(rf"(?<=/){re.escape(user)}(?![\w.-])")
        for name, value in variables.items():
            self._variable(name, value)  # numbers the addresses
            if ADDRESS_NAME.search(name) and (found := USERINFO.search(value)):
                self._exact[found[0]] = self._mask("credentials", found[0])
            if not SECRET_NAME.search(name) or value.startswith("<"):
                continue
            if len(value) >= SHORTEST_SECRET and not value.isdigit():
                self._exact[value] = self._mask("token", value)

    def _variable(self, name: str, value: str) -> str:
        if SECRET_NAME.search(name) and value and not value.startswith("<"):
            return self._mask("token", value)
        if name in NODE_LISTS and value:
            return self._mask("host", value)
        if name in USER_VARIABLES and value != "root":
            return self._mask("user", value)
        if name in POD_VARIABLES and value and not value.startswith("<"):
            self._learn_host(value)
            return self._mask("host", value)
        if ADDRESS_NAME.search(name):
            value = USERINFO.sub(lambda match: self._mask("credentials", match[0]), value)
            value = ADDRESS.sub(lambda match: self._address(match[0]), value)
            return HOST_IN_VALUE.sub(self._host_in_value, value)
        return value

    def _host_in_value(self, match: re.Match[str]) -> str:
        if PUBLIC_HOSTS.fullmatch(match[0]) or URL_SCHEME.match(match.string, match.start()):
            return match[0]
        self._learn_host(match[0])
        return self._mask("host", match[0])

    def _form(self, kind: str, value: str) -> str:
        """What a value of a known form becomes."""
        return self._address(value) if kind == "ip" else self._mask(kind, value)

    def _address(self, text: str) -> str:
        import ipaddress  # only where there is one

        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified:
            return text
        length = 24 if address.version == 4 else 64
        subnet = str(ipaddress.ip_network(f"{text}/{length}", strict=False))
        number = self._subnets.setdefault(subnet, len(self._subnets) + 1)
        found = self._masks.get(("ip", text))
        if found is None and self._key is not None:
            marks = f"{self._keyed('subnet', subnet)}.{self._keyed('ip', text)}"
            found = self._remember("ip", text, f"<ip:{marks}>")
        elif found is None:
            found = self._remember("ip", text, f"<ip:{number}.{self._counts['ip'] + 1}>")
        return found

    @property
    def key_mark(self) -> str:
        """By which two files are seen to be made with one key; it does not tell the key."""
        return self._keyed("key", "")

    def _keyed(self, kind: str, value: str) -> str:
        """A name for a value that only who has the key can make: HMAC-SHA-256, 40 bits of it."""
        import hashlib
        import hmac

        text = f"{kind}\0{value}".encode("utf-8", "surrogateescape")
        return hmac.new((self._key or "").encode(), text, hashlib.sha256).hexdigest()[:10]

    def _known_address(self, match: re.Match[str]) -> str:
        """An address that a variable named; others may be versions, such as 13.1.0.3."""
        return self._masks.get(("ip", match[0]), match[0])

    def _home_mask(self, match: re.Match[str]) -> str:
        self._masks["user", os.path.basename(match[0])] = "~"
        return "~"

    def _mask(self, kind: str, value: str) -> str:
        if value.startswith(("<", "~")):
            return value
        known = self._masks.get((kind, value))
        if known is None and self._key is not None:
            known = self._remember(kind, value, f"<{kind}:{self._keyed(kind, value)}>")
        elif known is None:
            known = self._remember(kind, value, f"<{kind}:{self._counts[kind] + 1}>")
        return known

    def _remember(self, kind: str, value: str, mask: str) -> str:
        """The mask of a value from now on; the first one stays."""
        if (kind, value) not in self._masks:
            self._counts[kind] += 1
        return self._masks.setdefault((kind, value), mask)


def _strings(variables: Any) -> dict[str, str]:
    """Only what a child of the doctor could have answered; a snapshot may hold anything."""
    items = variables.items() if isinstance(variables, dict) else ()
    return {key: value for key, value in items if isinstance(value, str)}


def _replace(mask: Callable[[str, str], str], kind: str, match: re.Match[str]) -> str:
    return mask(kind, match[0])


def _any_mask(kind: str, value: str) -> str:
    """A mask for a trial run: it numbers nothing."""
    if kind == "ip" and value.startswith(LOCAL_ADDRESSES):
        return value
    return value if value.startswith(("<", "~")) else f"<{kind}>"


def without_secrets(command: Sequence[str]) -> list[str]:
    """A command line that can be shown: values of secret options and variables are `<token>`."""
    shown: list[str] = []
    secret = False
    for word in command:
        if secret and not word.startswith("-"):  # --api-key takes several values
            shown.append("<token>")
            continue
        if " " in word:  # itself a command line, as after `bash -c`
            shown.append(" ".join(without_secrets(word.split(" "))))
            continue
        option = SECRET_OPTION.fullmatch(word)
        assignment = ASSIGNMENT.fullmatch(word)
        if option is not None:
            secret = option[1] is None
            shown.append(word if secret else word.partition("=")[0] + "=<token>")
        elif word.startswith("-"):
            secret = False
            joined = JOINED_VARIABLE.fullmatch(word)
            shown.append(f"{joined[1]}=<token>" if joined else word)
        elif assignment is not None and SECRET_NAME.search(assignment[1]):
            shown.append(f"{assignment[1]}=<token>")
        else:
            shown.append(word)
    return shown


def mask_line(text: str) -> str:
    """A line of a log without secrets, client addresses and users: it is masked before it is kept."""
    return secret_forms.mask(text, _mask_in_line)


def _mask_in_line(kind: str, value: str) -> str:
    return value if kind == "ip" and value.startswith(LOCAL_ADDRESSES) else f"<{kind}>"


LOCAL_ADDRESSES = ("127.", "0.0.0.0", "::1")  # noqa: S104 - looked for, not bound to
