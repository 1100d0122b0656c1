"""Which one thing of a launch takes its answers away from the baseline's: each is switched alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

from infer_doctor.facts.run import Quality
from infer_doctor.frozen import frozen
from infer_doctor.redact import without_secrets
from infer_doctor.runs.endpoint import NoServer
from infer_doctor.runs.starting import Plan
from infer_doctor.runs.words import PARTS, NoRun, parts, without

SWITCHES = (
    "program",
    "model",
    "quantization",
    "kv-cache-dtype",
    "chat-template",
    "generation-config",
    "override-generation-config",
    "dtype",
    "hf-overrides",
    "rope-scaling",
    "tokenizer",
    "tokenizer-mode",
    "revision",
    "load-format",
    "speculative-config",
    "attention-backend",
    "logits-processors",
    "default-chat-template-kwargs",
    "max-model-len",
)
"""Options that change what is answered, the gravest first; others change at most the rounding."""

REMOVABLE = frozenset(SWITCHES).difference(
    PARTS, ("tokenizer", "tokenizer-mode", "revision", "max-model-len")
)
"""A launch without one of these is a launch of the same model still."""

NEUTRAL = frozenset(
    [
        "host",
        "port",
        "uds",
        "root-path",
        "api-key",
        "served-model-name",
        "middleware",
        "allowed-origins",
        "ssl-keyfile",
        "ssl-certfile",
        "uvicorn-log-level",
        "disable-uvicorn-access-log",
        "max-log-len",
        "enable-log-requests",
        "disable-log-requests",
        "disable-log-stats",
        "download-dir",
        "gpu-memory-utilization",
        "swap-space",
        "api-server-count",
    ]
)
"""They decide who may ask, what is logged and where files are, not what is answered."""

MOST = 5
"""Starts to find the cause: each costs as much as one side of the comparison."""


@frozen
class Difference:
    """One thing that the two have otherwise, as words; none where one of them does not give it."""

    name: str
    baseline: tuple[str, ...]
    candidate: tuple[str, ...]
    variable: bool = False

    @property
    def text(self) -> str:
        """As in "--dtype float16 (baseline: --dtype bfloat16)"."""
        before = self._shown(self.baseline) or "not given"
        if not self.candidate:
            return f"the lack of {before}"
        return f"{self._shown(self.candidate)} (baseline: {before})"

    @property
    def switched(self) -> str:
        """As in "without --dtype float16", "with --dtype bfloat16 instead of --dtype float16"."""
        if not self.baseline:
            return f"without {self._shown(self.candidate)}"
        instead = (
            f" instead of {' '.join(without_secrets(self.candidate))}" if self.candidate else ""
        )
        return f"with {self._shown(self.baseline)}{instead}"

    def _shown(self, words: tuple[str, ...]) -> str:
        shown = " ".join(without_secrets(words))
        return f"the {self.name} {shown}" if words and self.name in PARTS else shown

    def undone(self, plan: Plan) -> Plan:
        """The candidate's plan with the baseline's words."""
        if self.variable:
            variables = {k: v for k, v in plan.variables.items() if k != self.name}
            for word in self.baseline:
                variables[self.name] = word.partition("=")[2]
            return dataclasses.replace(plan, variables=variables)
        found = {**parts(plan.words), self.name: self.baseline}
        return dataclasses.replace(plan, words=tuple(w for part in found.values() for w in part))


def differences(baseline: Plan, candidate: Plan) -> list[Difference]:
    """What differs, the likeliest cause first."""
    one, other = parts(baseline.words), parts(candidate.words)
    found = [
        Difference(name=name, baseline=one.get(name, ()), candidate=other.get(name, ()))
        for name in sorted(one.keys() | other.keys(), key=_rank)
        if name not in NEUTRAL and one.get(name, ()) != other.get(name, ())
    ]
    first, second = baseline.variables, candidate.variables
    for name in sorted(first.keys() | second.keys()):
        before, now = (
            (f"{name}={side[name]}",) if name in side else () for side in (first, second)
        )
        if before != now:
            found.append(Difference(name=name, baseline=before, candidate=now, variable=True))
    return found


def _rank(name: str) -> tuple[int, str]:
    plain = name.partition(".")[0]
    return (SWITCHES.index(plain) if plain in SWITCHES else len(SWITCHES), name)


def taken_out(plan: Plan, names: Collection[str]) -> Plan:
    """The launch without these options."""
    return dataclasses.replace(plan, words=without(plan.words, names))


def removable(plan: Plan) -> list[str]:
    """The options of a launch that may change its answers, and without which it is a launch still."""
    return [name for name in parts(plan.words) if name.partition(".")[0] in REMOVABLE]


def find_cause(
    quality: Quality,
    baseline: Plan | None,
    candidate: Plan,
    judge: Callable[[str, Plan], Quality],
    note: Callable[[str], None],
) -> Quality:
    """Give the candidate the baseline's value of one difference after the other, until it is the same.

    `judge` starts a plan and compares it with the baseline's answers. Where the baseline is no launch,
    what may change answers is taken out.
    """
    found = differences(baseline or taken_out(candidate, removable(candidate)), candidate)
    if len(found) == 1 and baseline is not None:  # nothing is left that it could be instead
        return dataclasses.replace(quality, cause=found[0].text, cure=found[0].switched)
    tried = []
    for difference in found[:MOST]:
        note(f"switching one thing: {difference.switched}")
        try:
            one = judge(difference.switched, difference.undone(candidate))
        except (NoRun, NoServer) as error:
            tried.append(f"{difference.switched}: {error}")
            continue
        value = f", {one.divergence.value:.4f} nats" if one.divergence is not None else ""
        tried.append(f"{difference.switched}: {one.verdict}{value}")
        if one.verdict == "same":
            return dataclasses.replace(
                quality, cause=difference.text, cure=difference.switched, tried=tuple(tried)
            )
    if len(found) > MOST:
        tried.append(f"{len(found) - MOST} more differences were not switched")
    return dataclasses.replace(quality, tried=tuple(tried))
