"""`infer-doctor probe`: a live server, from the client's side."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import TYPE_CHECKING, Any

import click

from infer_doctor._version import VERSION
from infer_doctor.commands.common import (
    document,
    emit,
    format_option,
    now,
    option,
    output_option,
    registry_of_checks,
    tokens_option,
)
from infer_doctor.model import EXIT

if TYPE_CHECKING:
    from infer_doctor.facts.server import Load
    from infer_doctor.model import Report
    from infer_doctor.registry import Registry
    from infer_doctor.server.probe import Found
    from infer_doctor.server.targets import Targets

AREA = "server-"
DECIDES = ("server-silent", "server-port-closed")
MOST_AT_ONCE = 1000
SAVED = "server-engine-stalled"


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="URL | FILE ...")
@option("--model", metavar="NAME", help="The model to ask for (default: the first one offered).")
@option("--key-file", metavar="FILE", help="The server's key (default: VLLM_API_KEY and the like).")
@option("--structured", is_flag=True, help="Also ask for JSON of a schema.")
@option("--tools", is_flag=True, help="Also ask with a tool.")
@option(
    "--requests",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Measure with N streams after the probe.",
)
@option(
    "--concurrency",
    type=click.IntRange(1, MOST_AT_ONCE),
    default=4,
    show_default=True,
    metavar="N",
    help="Streams at once of --requests.",
)
@option(
    "--ramp",
    type=click.IntRange(2, MOST_AT_ONCE),
    metavar="N",
    help="Find the knee: 1, 2, 4, ... streams at once, at most N.",
)
@tokens_option("Tokens of each stream of a measurement.")
@option(
    "--watch",
    type=click.FloatRange(1, 86_400),
    metavar="S",
    help="Probe every S seconds, a line each, until the verdict turns.",
)
@option(
    "--timeout",
    type=click.FloatRange(1, 600),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Seconds for the whole probe; a measurement comes on top.",
)
@option("--fail-on", type=click.Choice(["error", "warning"]), default="warning", show_default=True)
@format_option
@output_option
def probe(targets: tuple[str, ...], watch: float | None, **options: Any) -> None:
    """Is a live server reachable, right and fast enough; if not, what is at fault.

    URL is an OpenAI-compatible server (vLLM, trtllm-serve, Triton, hosted): http://host:8000. A
    second URL that ends with /metrics names where its metrics are. FILE is one saved /metrics or two,
    or what sets time-outs on the way: the configuration of nginx, HAProxy or Envoy, an Ingress or a
    route, a manifest, a launch, client code. At most 8 requests and 1 KB of prompt are sent, but for what --requests or
    --ramp ask for.
    """
    from infer_doctor.server.targets import read
    from infer_doctor.targets import NoTarget

    if options["requests"] is None and options["ramp"] is None and options["tokens"] != 64:
        raise click.UsageError("--tokens belongs to --requests or --ramp")
    try:
        given = read(targets)
    except NoTarget as error:
        raise click.ClickException(str(error)) from None
    if given.address is None and (watch or options["requests"] or options["ramp"]):
        raise click.UsageError("--watch, --requests and --ramp need the URL of a server")
    if watch and (options["format"] not in ("text", "json") or options["output"] is not None):
        raise click.UsageError("--watch writes lines to standard output, as text or as JSON")
    registry = registry_of_checks()
    if watch is not None:
        _watch(registry, given, watch, options)
    report = _report(registry, given, options)
    emit(report, options["format"], options["output"], fail_on=options["fail_on"])
    raise click.exceptions.Exit(EXIT[report.verdict])


def _watch(registry: Registry, given: Targets, every_s: float, options: dict[str, Any]) -> None:
    """A line for each probe; ends with the exit code of the first other verdict, or of the last one when
    nobody reads the lines any more."""
    from infer_doctor.commands.common import write
    from infer_doctor.render.plain import plain

    first: str | None = None
    while True:
        began = time.monotonic()
        report = _report(registry, given, options)
        if options["format"] == "json":
            import json

            line = json.dumps(json.loads(document(report, "json"))) + "\n"
        else:
            line = plain(_line(report)) + "\n"
        read = write(line, None)
        if not read:
            raise click.exceptions.Exit(EXIT[report.verdict])
        if first is None:
            first = report.verdict
        elif report.verdict != first:
            raise click.exceptions.Exit(EXIT[report.verdict])
        time.sleep(max(every_s - (time.monotonic() - began), 0))


def _line(report: Report) -> str:
    """Time, verdict, first token, and what is wrong."""
    stream = (report.measurements or {}).get("stream")
    words = [report.started_at, f"{report.verdict:<7}"]
    if stream is not None:
        words.append(f"first token {stream['first_token_ms']:.0f} ms")
    if report.primary is not None and report.verdict == "fail":
        words.append(f"[{report.primary.check}] {report.primary.message}")
    return "  ".join(words)


def _report(registry: Registry, given: Targets, options: dict[str, Any]) -> Report:
    """One probe, judged."""
    from infer_doctor.engine import Subject, run
    from infer_doctor.model import Engine
    from infer_doctor.redact import Redactor
    from infer_doctor.report import build
    from infer_doctor.server.chain import chain
    from infer_doctor.server.subject import engine_of, give, measured
    from infer_doctor.server.targets import saved_metrics

    started, started_at = time.monotonic(), now()
    found, load, missing = _asked(given, options) if given.address is not None else (None, None, "")
    metrics = saved_metrics(given)
    name = (
        given.address.url if given.address is not None else metrics.source if metrics else "files"
    )
    subject = Subject(name, registry, host=None, unasked="not seen by a probe")
    times = chain(given.limits, given.buffering, found, tuple(given.gaps))
    give(subject, found, metrics=metrics, chain=times, load=load, no_load=missing)
    checks = [check for id, check in registry.checks.items() if id.startswith(AREA)]
    redactor = Redactor([])
    if found is not None and found.asker is not None and found.asker.key is not None:
        redactor.learn_secret(found.asker.key.value)
    report = build(
        command="probe",
        version=VERSION,
        started_at=started_at,
        duration_s=round(time.monotonic() - started, 3),
        subjects=[subject],
        results=run(checks, subject),
        fail_on=options["fail_on"],
        required=_required(found, bool(given.saved)),
        launch=(),
        redactor=redactor,
        redactions=redactor.redactions,
    )
    engine = engine_of(found, metrics)
    target = dataclasses.replace(
        report.target, engine=Engine(name=engine, version=None) if engine else None
    )
    return dataclasses.replace(report, target=target, measurements=measured(found, load))


def _required(found: Found | None, saved: bool) -> set[str]:
    """What a verdict of pass stands on: tokens came, or saved numbers tell of progress."""
    if found is None:
        return {SAVED} if saved else set()
    others = found.answers.exchanges if found.answers is not None else ()
    if any(row.name == "generate" or (row.name == "embedding" and row.fine) for row in others):
        return {*DECIDES}
    return {*DECIDES, "server-stream-broken"}


def _asked(given: Targets, options: dict[str, Any]) -> tuple[Found, Load | None, str]:
    """The probe, then the measurement if it was asked for and the server made tokens."""
    import asyncio

    from infer_doctor.server.features import Question
    from infer_doctor.server.key import BadKey, find
    from infer_doctor.server.load import Spec
    from infer_doctor.server.measure import Wanted, measure
    from infer_doctor.server.probe import probe

    address = given.address
    assert address is not None
    try:
        key = find(address, options["key_file"], os.environ)
    except BadKey as error:
        raise click.ClickException(str(error)) from None
    question = Question(
        model=options["model"] or address.deployment,
        structured=options["structured"],
        tools=options["tools"],
        timeout_s=options["timeout"],
        metrics=given.metrics_address,
    )
    requests, ramp = options["requests"], options["ramp"]

    async def all() -> tuple[Found, Load | None, str]:
        found = await probe(address, question, key, dict(os.environ))
        if requests is None and ramp is None:
            return found, None, ""
        streamed, asker = found.streamed, found.asker
        if streamed is None or streamed.first_ms is None or asker is None or not found.models:
            return found, None, "the probe got no token: nothing was measured"
        wanted = Wanted(
            requests=requests,
            concurrency=options["concurrency"],
            ramp=ramp,
            tokens=options["tokens"],
        )
        spec = Spec(
            model=found.model or "",
            requests=requests or 0,
            concurrency=options["concurrency"],
            api=found.api,
            tokens=options["tokens"],
            chat="chat" in streamed.path,
            exact=found.models.owner == "vllm",
            key=asker.key if asker.keyed else None,
            dialect=found.dialect,
        )
        return found, await measure(asker, spec, wanted), ""

    return asyncio.run(all())
