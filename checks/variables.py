"""Environment variables that are not the engine's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infer_doctor.catalog.variables import SLOW
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.machine import Environ
from infer_doctor.fixes.models import change_variable
from infer_doctor.fixes.variables import exempt_localhost, unset
from infer_doctor.launch.model import Launch
from infer_doctor.launch.variables import of_engine
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check

PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
"""What clients ask for a plain http URL; curl reads the lower-case form alone, Python both."""

LOCAL = ("localhost", "127.0.0.1")


@check("env-debug-left-on", severity="warning", category="environment", since="0.1")
def debug_left_on(environ: Environ, launch: Launch | None) -> Iterator[Finding]:
    """A variable for debugging is set that makes an engine slow.

    ## Why it matters
    It is set to find one fault and forgotten; the engine works, at a fraction of its throughput.

    ## How it decides
    A short list of variables and the values that switch them on, with their sources
    (catalog/variables.py). NCCL_P2P_DISABLE and its like are only told as info: they are also the
    known way round broken peer-to-peer access. NCCL_DEBUG=INFO is not among them: it writes at the
    start only. What the launch itself sets goes before what is set here.

    ## Fix safety
    Safe: it changes the environment of the next start only.
    """
    values = of_engine(launch, environ, *SLOW)
    written = {row.name: row.place for row in launch.environment} if launch else {}
    for name, slow in SLOW.items():
        value = values.get(name, "")
        if value.strip().lower() not in slow.values:
            continue
        place, excerpt = written.get(name), f"{name}={value}"
        source = place.file if place else "environment"
        yield Finding(
            about=name,
            message=f"{name}={value} is set: {slow.effect}",
            severity=slow.severity,
            evidence=(
                Evidence(source=source, line=place.line if place else None, excerpt=excerpt),
            ),
            fixes=(change_variable(launch, name, None) if launch and place else unset(name),),
        )


@check("env-proxy-catches-localhost", severity="warning", category="proxy", since="0.1")
def proxy_catches_localhost(environ: Environ) -> Iterator[Finding]:
    """A proxy is set that requests to this machine go through too.

    ## Why it matters
    A health check or client on this machine asks the proxy for http://localhost:8000 and gets its
    error page, or a time-out, while the engine is well.

    ## How it decides
    A proxy for plain http is set (http_proxy or all_proxy in either case) and no_proxy holds
    neither "*" nor both "localhost" and "127.0.0.1". Networks such as 127.0.0.0/8 are not counted:
    Python and curl before 7.86 take them for names. Clients on other machines are not affected.

    ## Fix safety
    Safe: it changes the environment of the next start only.
    """
    variables = environ.variables
    name = next((name for name in PROXIES if variables.get(name)), None)
    if name is None:
        raise NotApplicable("no proxy is set for plain http")
    exempt = _exempt(variables)
    if "*" in exempt:
        return
    missing = [host for host in LOCAL if host not in exempt]
    if missing:
        yield Finding(
            about=name,
            message=f"{name} is set and no_proxy does not exempt {' and '.join(missing)}: requests "
            "from here to an engine on this machine go to the proxy",
            evidence=(
                Evidence(source="environment", excerpt=f"{name}={variables[name]}"),
                Evidence(source="environment", excerpt=f"no_proxy={','.join(sorted(exempt))}"),
            ),
            fixes=(exempt_localhost([*sorted(exempt), *missing]),),
        )


def _exempt(variables: Mapping[str, str]) -> set[str]:
    """The names in no_proxy; the lower-case form wins where both are set."""
    value = variables.get("no_proxy") or variables.get("NO_PROXY") or ""
    return {part.strip().lstrip(".").lower() for part in value.split(",") if part.strip()}
