"""The report as one HTML file that needs no network.

Every text of the report is escaped. The page's policy lets run only the one script and style that
are named by their hash, so that even a mistake there could not make a log line a program.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator
from typing import Any

from infer_doctor.model import CheckResult, Evidence, Finding, Fix, Report
from infer_doctor.render import words
from infer_doctor.render.charts import measured, memory
from infer_doctor.render.plain import plain

VERDICTS = {"pass": "Pass", "fail": "Fail", "unknown": "Unknown"}
NAMES = {"error": "error", "warning": "warning", "info": "note"}
OUTCOMES = {
    "blocked": "Could not be decided",
    "crashed": "Crashed (a fault of infer-doctor)",
    "not_applicable": "Cannot apply here",
    "passed": "Passed",
}

DEEPEST = 12
"""Levels of nested facts that are shown."""

STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--line:#d0d7de;--box:#f6f8fa;
--error:#b42318;--warning:#8a5300;--info:#0b5cad;--pass:#1a6b34;--bar0:#2f6fb0;--bar1:#c2571a;
--bar2:#3b8a4a;--bar3:#7d55b0;--bar4:#8a8f98;--bar5:#a8416e}
@media(prefers-color-scheme:dark){:root{--bg:#0f1317;--fg:#e4e8ec;--dim:#9aa4af;--line:#323a43;
--box:#181d23;--error:#ff8a7a;--warning:#f0b35b;--info:#7ab8ff;--pass:#74d28b;--bar0:#5b9ad9;
--bar1:#e08a50;--bar2:#67b577;--bar3:#a98be0;--bar4:#8b949e;--bar5:#d679a4}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:60rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
h3{font-size:1rem;margin:0 0 .3rem}p{margin:.3rem 0}
.dim{color:var(--dim)}.error{color:var(--error)}.warning{color:var(--warning)}
.info{color:var(--info)}.pass{color:var(--pass)}.fail{color:var(--error)}.unknown{color:var(--warning)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:.8rem 0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
article{border:1px solid var(--line);border-left:.35rem solid var(--line);border-radius:.3rem;
padding:.7rem .9rem;margin:.8rem 0}
article.error{border-left-color:var(--error);color:inherit}
article.warning{border-left-color:var(--warning);color:inherit}
article.info{border-left-color:var(--info);color:inherit}
h3,p,li,td,th{overflow-wrap:anywhere}
pre,code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
pre{background:var(--box);border:1px solid var(--line);border-radius:.3rem;padding:.5rem .7rem;
margin:.4rem 0;white-space:pre-wrap;overflow-wrap:anywhere}
pre.command{border-left:.2rem solid var(--pass)}
details{margin:.4rem 0}summary{cursor:pointer;padding:.15rem 0}
ul{margin:.3rem 0;padding-left:1.2rem}
input{font:inherit;width:100%;padding:.4rem .6rem;color:inherit;background:var(--box);
border:1px solid var(--line);border-radius:.3rem}
table{border-collapse:collapse;width:100%;table-layout:fixed}
td,th{text-align:left;vertical-align:top;padding:.15rem .6rem .15rem 0;
border-bottom:1px solid var(--line);font-size:.9rem}
th{font-weight:400;width:45%}
svg{display:block;width:100%;height:1.6rem;border-radius:.2rem;margin:.3rem 0}
.c0{fill:var(--bar0)}.c1{fill:var(--bar1)}.c2{fill:var(--bar2)}.c3{fill:var(--bar3)}
.c4{fill:var(--bar4)}.c5{fill:var(--bar5)}.room{fill:var(--box)}
.key{display:inline-block;margin:0 1rem .2rem 0;white-space:nowrap}
.key svg{display:inline-block;width:.8rem;height:.8rem;margin:0 .35rem 0 0;vertical-align:-.05rem}
.row{display:grid;grid-template-columns:minmax(7rem,14rem) 1fr max-content;gap:.6rem;
align-items:center}.row svg{height:.9rem;margin:.1rem 0}
[hidden]{display:none}
@media print{input{display:none}}
"""

SCRIPT = """
(function(){
  var field = document.getElementById("search");
  var count = document.getElementById("found");
  var rows = [].slice.call(document.querySelectorAll("#facts tr"));
  var groups = [].slice.call(document.querySelectorAll("#facts details"));
  field.addEventListener("input", function(){
    var wanted = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
    var shown = 0;
    rows.forEach(function(row){
      var text = row.textContent.toLowerCase();
      row.hidden = !wanted.every(function(word){ return text.indexOf(word) >= 0; });
      shown += row.hidden ? 0 : 1;
    });
    groups.forEach(function(group){
      var any = !!group.querySelector("tr:not([hidden])");
      group.hidden = !any;
      group.open = any && wanted.length > 0;
    });
    count.textContent = wanted.length ? shown + " of " + rows.length : "";
  });
})();
"""


def render(report: Report) -> str:
    """The whole page."""
    return "\n".join(_page(report)) + "\n"


def e(text: object) -> str:
    """Text as HTML that shows it and nothing else."""
    return html.escape(plain(str(text)), quote=True)


def _page(report: Report) -> Iterator[str]:
    policy = (
        f"default-src 'none'; style-src '{_digest(STYLE)}'; script-src '{_digest(SCRIPT)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{e(policy)}">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{e(report.tool.name)}: {e(report.verdict)}</title>"
    yield f"<style>{STYLE}</style></head><body>"
    yield f'<p class="dim">{e(report.tool.name)} {e(report.tool.version)} {e(report.command)}</p>'
    yield f'<h1 class="{report.verdict}">{VERDICTS[report.verdict]}</h1>'
    yield f"<p>{e(words.totals(report))}</p>"
    yield "<dl>"
    for name, value in words.versions(report):
        if value:
            yield f"<dt>{e(name)}</dt><dd>{e(value)}</dd>"
    yield "</dl>"
    found = words.findings(report)
    yield "<h2>Findings</h2>" if found else "<h2>No findings</h2>"
    shown: set[str] = set()
    for finding in found:
        yield from _finding(finding, shown)
        shown.update(fix.id for fix in finding.fixes)
    yield from memory(report.plan, e)
    yield from measured(report.measurements, e)
    yield "<h2>Checks</h2>"
    for outcome, title in OUTCOMES.items():
        yield from _outcome([r for r in report.results if r.outcome == outcome], title)
    if hidden := words.suppressed(report):
        yield f"<details><summary>Suppressed: {len(hidden)}</summary><ul>"
        for finding in hidden:
            why = e(finding.suppressed)
            yield f"<li><code>{e(finding.check)}</code> {e(finding.message)}: {why}</li>"
        yield "</ul></details>"
    yield from _facts(report.facts)
    yield f'<p class="dim">Masked before this was written: {e(words.masked(report))}.</p>'
    yield f"<script>{SCRIPT}</script></body></html>"


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _finding(finding: Finding, shown: set[str]) -> Iterator[str]:
    severity = finding.severity or "info"
    sure = "" if finding.confidence == "certain" else f", {finding.confidence}"
    yield f'<article class="{severity}"><h3>{e(finding.message)}</h3>'
    yield (
        f'<p class="dim"><span class="{severity}">{NAMES[severity]}{sure}</span> '
        f"<code>{e(finding.check)}</code> {e(finding.subject)}</p>"
    )
    if finding.evidence:
        yield f"<pre>{e(chr(10).join(_evidence(item) for item in finding.evidence))}</pre>"
    for fix in finding.fixes:
        if fix.id in shown:
            yield f"<p>Fix: as above, {e(fix.title)}</p>"
        else:
            yield from _fix(fix)
    yield "</article>"


def _evidence(evidence: Evidence) -> str:
    excerpt = evidence.excerpt.strip()
    return f"{words.place(evidence)}: {excerpt}" if excerpt else words.place(evidence)


def _fix(fix: Fix) -> Iterator[str]:
    yield f"<p>Fix: {e(words.title(fix))}</p>"
    if fix.why:
        yield f'<p class="dim">{e(fix.why)}</p>'
    for action in fix.actions:
        is_command, text = words.step(action)
        yield f'<pre class="command">{e(text)}</pre>' if is_command else f"<p>{e(text)}</p>"


def _outcome(rows: list[CheckResult], title: str) -> Iterator[str]:
    if not rows:
        return
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(row.reason or "", []).append(row.check)
    yield f"<details><summary>{e(title)}: {len(rows)}</summary><ul>"
    for reason, ids in by_reason.items():
        names = ", ".join(f"<code>{e(id)}</code>" for id in dict.fromkeys(ids))
        yield f"<li>{names}{': ' + e(reason) if reason else ''}</li>"
    yield "</ul></details>"


def _facts(facts: dict[str, Any]) -> Iterator[str]:
    """Every fact by its path, a row each, with a field to search them."""
    yield '<h2>Facts</h2><p><input id="search" type="search" aria-label="Search the facts" '
    yield 'placeholder="Search the facts"> <span id="found" class="dim"></span></p>'
    yield '<div id="facts">'
    for subject, kinds in facts.items():
        for kind, value in (kinds if isinstance(kinds, dict) else {"": kinds}).items():
            name = f"{subject}: {kind}" if len(facts) > 1 else kind
            yield f"<details><summary>{e(name)}</summary><table>"
            for path, text in _rows(value, ""):
                yield f"<tr><th>{e(f'{kind}{path}')}</th><td>{e(text)}</td></tr>"
            yield "</table></details>"
    yield "</div>"


def _rows(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value and depth < DEEPEST:
        for key, item in value.items():
            yield from _rows(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, (list, tuple)) and value and depth < DEEPEST:
        if all(isinstance(item, (str, int, float)) for item in value):
            yield path, ", ".join(str(item) for item in value)
            return
        for number, item in enumerate(value):
            yield from _rows(item, f"{path}[{number}]", depth + 1)
    else:
        yield path, "-" if value is None else str(value)
