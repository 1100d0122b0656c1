"""Tokens and keys that show by their form who made them, as in the rule sets of secret scanners."""

from __future__ import annotations

import re

from infer_doctor.late import Late

START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
"""Where a word begins, also behind the escaped end of a line in JSON."""

MADE = Late(
    START
    + r"(?P<s>hf_(?:jwt_[\w.-]{16,}|[A-Za-z0-9]{16,})|api_org_[A-Za-z0-9]{20,}|sk-(?:(?:proj|ant|or|svcacct|admin|lf)-[\w-]{16,}"
    r"|(?=[\w-]*\d)(?=[\w-]*[A-Z]|[\w-]*[a-z0-9]{16})[\w-]{16,})"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|(?:gl(?:pat|dt|rt|cbt|ptt|soat|agent)|nvapi)-[A-Za-z0-9_-]{16,}"
    r"|GR1348941[A-Za-z0-9_-]{16,}|xox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|xapp-[A-Za-z0-9-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|GOCSPX-[A-Za-z0-9_-]{20,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}|dckr_pat_[A-Za-z0-9_-]{20,}"
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|gsk_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{30,}|dapi[0-9a-f]{32}"
    r"|hvs\.[A-Za-z0-9_-]{20,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|(?:xai|pplx|tvly|tskey-(?:auth|api|client))-[A-Za-z0-9-]{20,}|lsv2_[ps]t_[A-Za-z0-9_]{20,}"
    r"|(?:do[opr]_v1|lin_api|shp(?:at|ss|ca|pa))_[A-Za-z0-9]{20,}|AGE-SECRET-KEY-1[0-9A-Z]{40,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"
)
MADE_WORDS = (
    "hf_",
    "api_org_",
    "sk-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "glrt-",
    "glcbt-",
    "glptt-",
    "glsoat-",
    "glagent-",
    "gr1348941",
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
    "xai-",
    "pplx-",
    "tvly-",
    "tskey-",
    "lsv2_",
    "_v1_",
    "lin_api_",
    "shpat_",
    "shpss_",
    "shpca_",
    "shppa_",
    "age-secret-key",
    "eyj",
)

AZURE = Late(r"(?<![\w~.-])(?P<s>[A-Za-z0-9_~.-]{3}8Q~[A-Za-z0-9_~.-]{31,34})")
HOOK = Late(
    r"(?:hooks\.slack\.com/(?:services|workflows)/|discord(?:app)?\.com/api/webhooks/)"
    r"(?P<s>[A-Za-z0-9/_-]{8,})"
)
CRYPT = Late(r"(?<![\w$])(?P<s>\$(?:1|5|6|7|2[abxy]|g?y|argon2(?:id|i|d))\$[\w./$,=+-]{12,})")
CRYPT_WORDS = ("$1$", "$5$", "$6$", "$7$", "$2a$", "$2b$", "$2x$", "$2y$", "y$", "$argon2")
"""Hashes of passwords: /etc/shadow, htpasswd, cloud-init (crypt(5))."""
TELEGRAM = Late(r"(?:(?<=/bot)|(?<![\w:]))(?P<s>\d{8,10}:AA[A-Za-z0-9_-]{32,34})(?![\w-])")
PEM = Late(
    r"(?P<s>-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:(?!-----BEGIN).){0,20000}?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"|(?:(?:\s|\\n|\\r)*[A-Za-z0-9+/=]{30,})*))",
    re.S,
)
"""To its end, or as far as lines of base64 go where the end is not there."""
