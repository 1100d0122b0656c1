"""Python code that uses TensorRT-LLM's classes."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.trtllm_options import GENERATE, GENERATE_WRONG
from infer_doctor.facts.client_code import ClientCode
from infer_doctor.fixes.trtllm import advise
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check

ENGINE = "tensorrt_llm.LLM"


@check("trt-name-missing", severity="error", category="wrapper_generic", since="0.3")
def name_missing(code: ClientCode) -> Iterator[Finding]:
    """The code imports a name that tensorrt_llm never had.

    ## Why it matters
    "ImportError: cannot import name 'TRTLLMEngine' from 'tensorrt_llm'" at the start.

    ## How it decides
    `from tensorrt_llm import X` with a name of a short list: TRTLLMEngine and the like, which advice
    on the web uses, and vLLM's LLMEngine, EngineArgs and others (tensorrt_llm/__init__.py of 0.9 to
    1.2 and of late 2026 exports none of them). Other names are not judged: not every release was read. Not in a `try`.

    ## Fix safety
    Manual: the class that there is takes other arguments.
    """
    for row in code.bad_names:
        if row.package != "tensorrt_llm" or row.kind != "not exported":
            continue
        yield Finding(
            about=f"{code.file} {row.name}",
            message=f"no release of tensorrt_llm that is known has {row.name}: ImportError",
            evidence=(Evidence(source=row.place.file, line=row.place.line, excerpt=row.excerpt),),
            fixes=(
                advise(
                    "use-llm-class",
                    "Write `from tensorrt_llm import LLM, SamplingParams` and LLM(model=FOLDER)",
                    "batch and length limits of an engine are those of its build",
                    "LLM(model=FOLDER).generate([text], SamplingParams(max_tokens=512))",
                    "engines in 1.0 to 1.2: from tensorrt_llm._tensorrt_engine import LLM",
                ),
            ),
        )


@check("trt-generate-keyword", severity="error", category="launch_argument", since="0.3")
def generate_keyword(code: ClientCode) -> Iterator[Finding]:
    """generate() of TensorRT-LLM is called with keywords that it does not have.

    ## Why it matters
    "generate() got an unexpected keyword argument 'max_new_tokens'" at the first request, after the
    engine was loaded for minutes.

    ## How it decides
    A call of generate or generate_async on what LLM(...) of tensorrt_llm made, with a keyword that
    the method has in none of 0.14 to the newest: lengths and sampling belong into SamplingParams
    (max_tokens, temperature, top_p, top_k), prompts into `inputs`.

    ## Fix safety
    Manual.
    """
    for call in code.calls:
        if call.kind != "generate" or not call.name.startswith(ENGINE):
            continue
        if not call.name.endswith(("generate", "generate_async")):
            continue
        for word in call.keywords:
            if word.name in GENERATE:
                continue
            instead = GENERATE_WRONG.get(word.name)
            hint = f": {instead}" if instead else ""
            yield Finding(
                about=f"{code.file} {word.name}",
                confidence="certain" if instead else "likely",
                message=f"generate() of TensorRT-LLM has no {word.name}{hint}",
                evidence=(
                    Evidence(source=word.place.file, line=word.place.line, excerpt=call.excerpt),
                ),
                fixes=(
                    advise(
                        f"move-{word.name.replace('_', '-')}",
                        f"Write {instead}" if instead else f"Take {word.name} out",
                    ),
                ),
            )
