"""Builds the documentation as a site: python scripts/make_docs.py [-o build/site]

One page for each check, made from its docstring; the recipes with the files that the tests run; the
report. Everything is put together in a temporary folder, mkdocs does the rest; a warning is an error.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from infer_doctor.explain import markdown
from infer_doctor.registry import Check, load

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

REPORT = """\
# The report

Every command prints the same report, in one of several forms (`--format`). The exit code is the same
in each of them.

| form | for |
|---|---|
| `text` | a person at a terminal |
| `json` | programs; version 1, [schema](report.schema.json); fields are only added |
| `markdown` | an issue: versions on top, the rest folded |
| `junit` | CI that shows tests: a case a check; red exactly when the exit code is not 0 |
| `sarif` | SARIF 2.1.0 for code scanning: findings are results, checks are rules, what could not be decided is a notification |
| `html` | one file without network: findings, memory, phases, facts to search |

## Fields

{fields}

## What is masked

Secrets, user and host names, addresses and serial numbers are masked before anything is written; the
report counts how many values of each kind. Masks are typed and numbered, `<token:1>`, `<ip:1.2>`
(subnet 1, address 2), the same for the same value everywhere in a report. The own home folder becomes
`~`. Loopback addresses, versions, hashes, UUIDs of GPUs and paths stay.

## Bundles

`infer-doctor bundle -o ticket.zip [TARGET ...]` puts into one zip what a support ticket needs: the
snapshot, the report as JSON and HTML, ends of logs and configurations that were named or that belong to
engines that run here, and a manifest with their SHA-256 and with what was left out. With `--container
NAME` also what Docker says of a container, and its log. It is at most `--max-size` large (20 MB): ends
of logs are cut until it fits. `infer-doctor check --snapshot ticket.zip` replays the machine elsewhere.
"""


def check_page(check: Check) -> str:
    """The docstring with its headings one level down from the title."""
    return markdown(check)


def checks_index(checks: list[Check]) -> str:
    lines = [
        "# Checks",
        "",
        f"{len(checks)} checks. Each says what it looks at and how it decides.",
        "",
    ]
    for area in dict.fromkeys(area_of(check) for check in checks):
        lines += [f"## {area}", "", "| check | severity | |", "|---|---|---|"]
        for check in checks:
            if area_of(check) == area:
                title = check.title.replace("|", "\\|")
                lines.append(f"| [{check.id}]({check.id}.md) | {check.severity} | {title} |")
        lines.append("")
    return "\n".join(lines) + "\n"


def area_of(check: Check) -> str:
    return check.id.partition("-")[0]


def recipes() -> str:
    """The page with the very files in it."""
    text = (DOCS / "recipes" / "index.md").read_text(encoding="utf-8")

    def file(match: re.Match[str]) -> str:
        return (DOCS / "recipes" / match[1]).read_text(encoding="utf-8").rstrip("\n")

    return re.sub(r"^\{\{ (\S+) \}\}$", file, text, flags=re.M)


def report_page() -> str:
    """The fields of the report out of its schema."""
    schema: dict[str, Any] = json.loads((DOCS / "report.schema.json").read_text(encoding="utf-8"))
    parts = [fields_of("Report", schema)]
    parts += [fields_of(name, kind) for name, kind in sorted(schema["$defs"].items())]
    return REPORT.format(fields="\n\n".join(parts))


def fields_of(name: str, kind: dict[str, Any]) -> str:
    about = " ".join(str(kind.get("description", "")).split())
    lines = [f"### {name}", "", about, "", "| field | type |", "|---|---|"]
    for field, value in kind.get("properties", {}).items():
        lines.append(f"| `{field}` | {type_of(value)} |")
    return "\n".join(lines)


def type_of(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in value:
        shown = ", ".join(f"`{item}`" for item in value["enum"])
        return shown if len(value["enum"]) <= 8 else f"one of {len(value['enum'])} names"
    if "const" in value:
        return f"`{value['const']}`"
    if kinds := value.get("anyOf") or value.get("oneOf"):
        return " or ".join(type_of(kind) for kind in kinds)
    if value.get("type") == "array":
        return f"list of {type_of(value.get('items', {}))}"
    return str(value.get("type", "anything"))


def write_pages(folder: Path) -> None:
    checks = sorted(load().checks.values(), key=lambda check: check.id)
    (folder / "checks").mkdir(parents=True)
    for check in checks:
        (folder / "checks" / f"{check.id}.md").write_text(check_page(check), encoding="utf-8")
    (folder / "checks" / "index.md").write_text(checks_index(checks), encoding="utf-8")
    (folder / "recipes.md").write_text(recipes(), encoding="utf-8")
    (folder / "report.md").write_text(report_page(), encoding="utf-8")
    shutil.copy(DOCS / "report.schema.json", folder)
    for page in DOCS.glob("*.md"):
        shutil.copy(page, folder)


class _Count(logging.Handler):
    """Counts warnings of mkdocs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())


def build(output: Path) -> list[str]:
    """Write the site; returns the warnings."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    count = _Count()
    logger = logging.getLogger("mkdocs")
    logger.addHandler(count)
    try:
        with tempfile.TemporaryDirectory() as name:
            pages = Path(name) / "pages"
            write_pages(pages)
            settings = Path(name) / "mkdocs.yml"
            settings.write_text("site_name: infer-doctor\n", encoding="utf-8")
            build_site(
                load_config(
                    str(settings),
                    docs_dir=str(pages),
                    site_dir=str(output.resolve()),
                    site_url="",
                    use_directory_urls=False,
                    theme={"name": "mkdocs", "highlightjs": False, "color_mode": "auto"},
                    validation={"anchors": "warn", "links": {"anchors": "warn"}},
                    not_in_nav="checks/*.md",
                    nav=[
                        {"Start": "index.md"},
                        {"Recipes": "recipes.md"},
                        {"Many machines": "cluster.md"},
                        {"Memory plan": "memory-plan.md"},
                        {"Fixes": "fixes.md"},
                        {"Log signatures": "log-signatures.md"},
                        {"Report": "report.md"},
                        {"Settings": "configuration.md"},
                        {"Checks": "checks/index.md"},
                        {"Architecture": "architecture.md"},
                    ],
                )
            )
    finally:
        logger.removeHandler(count)
    return count.seen


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build" / "site")
    output = parser.parse_args().output
    warnings = build(output)
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")
    pages = sum(1 for _ in output.rglob("*.html"))
    sys.stdout.write(f"{output}: {pages} pages, {len(warnings)} warnings\n")
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main())
