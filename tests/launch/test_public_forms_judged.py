"""Forms seen in public files that were judged wrongly once: what is said of them now."""

from __future__ import annotations

from typing import Any

import pytest
from launch_files import facts, facts_of, launches_in

from infer_doctor.checks.launch_arguments import (
    argument_removed,
    argument_unknown,
    argument_value,
    model_unnamed,
)
from infer_doctor.checks.launch_conflicts import argument_conflict
from infer_doctor.checks.launch_environment import variable_unread
from infer_doctor.checks.manifest import gpu_count, gpu_missing
from infer_doctor.checks.security import key_exposed, remote_code
from infer_doctor.facts.engine_options import EngineQuestion
from infer_doctor.facts.vllm_options import engine_options, vllm_table
from infer_doctor.launch.model import Unknown
from infer_doctor.launch.recognise import launches
from infer_doctor.launch.secrets import masked
from infer_doctor.model import Finding
from infer_doctor.testing import examine


def script(line: str, version: str = "0.29.0") -> list[Any]:
    (launch,) = launches_in(f"#!/bin/bash\n{line}\n", "serve.sh")
    question = EngineQuestion(name="vllm", version=version)
    return [launch, engine_options(launch, vllm_table(launch, None, None, question))]


def found(check: Any, given: list[Any]) -> list[Finding]:
    return list(examine(check, *given).findings)


def test_ansi_c_quoting() -> None:
    given = script(
        'vllm serve m --speculative-config $\'{"method": "ngram",\n'
        '  "num_speculative_tokens": 5, "note": "it\\\'s \\x41\\u00e9\\101"}\''
    )
    assert given[1].given["speculative_config"].value == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "note": "it's AéA",
    }


def test_a_blank_after_the_backslash() -> None:
    (finding,) = found(argument_unknown, script("vllm serve m \\ \n  --max-model-len 512"))
    assert "backslash and a blank" in finding.message
    assert finding.fixes[0].id == "continue-line"


def test_serve_after_the_entry_point_of_the_image() -> None:
    given = facts(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: e\n"
        "    image: vllm/vllm-openai:v0.20.0\n    args: [serve, org/model, --port=8000]\n",
        "pod.yaml",
    )
    (finding,) = found(argument_unknown, given)
    assert (finding.about, finding.fixes[0].title) == ("serve", "Start without serve")


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("--gpu-memory-utilization 90", "Write --gpu-memory-utilization 0.9 instead of"),
        ("--gpu-memory-utilization 1.5", None),
        ("--port 99999", None),
    ],
)
def test_values_out_of_bounds(line: str, fix: str | None) -> None:
    (finding,) = found(argument_value, script(f"vllm serve m {line}"))
    assert "must be at most" in finding.message
    assert (finding.fixes[0].title.startswith(fix) if fix else not finding.fixes) is True


def test_a_refused_value_is_told_once() -> None:
    given = script("vllm serve m --max-num-seqs 0 --max-num-batched-tokens -5")
    assert len(found(argument_value, given)) == 2
    assert found(argument_conflict, given) == []


@pytest.mark.parametrize(
    "line",
    [
        'vllm serve "$@"',
        'vllm serve "${ARGS[@]}"',
        "vllm serve $EXTRA_ARGS",
        'python3 -m vllm.entrypoints.openai.api_server "${ARGS[@]}"',
    ],
)
def test_words_that_may_be_several(line: str) -> None:
    given = script(line)
    assert given[1].gaps
    assert found(model_unnamed, given) == []


def test_help_and_images_without_arguments_name_no_model() -> None:
    assert examine(model_unnamed, *script("vllm serve --help=max-num-seqs")).outcome == (
        "not_applicable"
    )
    derived = facts("FROM vllm/vllm-openai:v0.20.0\nRUN pip install x\n", "Dockerfile")
    assert examine(model_unnamed, *derived).outcome == "not_applicable"


@pytest.mark.parametrize(
    ("call", "version"),
    [
        ('quantization="AWQ"', "0.8.5"),
        ('quantization="AWQ", dtype="Float16"', "0.25.0"),
        ('guided_decoding_backend="xgrammar:no-fallback"', "0.8.5"),
    ],
)
def test_values_that_the_classes_put_into_lower_case(call: str, version: str) -> None:
    (launch,) = launches_in(f'from vllm import LLM\nllm = LLM("m", {call})\n', "a.py")
    question = EngineQuestion(name="vllm", version=version)
    options = engine_options(launch, vllm_table(launch, None, None, question))
    assert found(argument_value, [launch, options]) == []


@pytest.mark.parametrize(
    "text",
    [
        "type: service\npython: '3.11'\nport: 8000\nresources: {gpu: 24GB}\n"
        "commands: [vllm serve $MODEL]\nmodel: {format: openai, name: a/b}\n",
        "description: bench\nmodel: m\nbatch_specs: [q1k]\nwarmup: 3\n",
    ],
)
def test_other_programs_with_a_model(text: str) -> None:
    assert launches(text, "a.yaml", None) is None


def test_a_misspelt_key_of_a_small_configuration() -> None:
    given = facts("model: m\ntensor_paralel_size: 2\n", "a.yaml")
    assert [row.about for row in found(argument_unknown, given)] == ["tensor_paralel_size"]


def test_the_tag_of_another_product_is_no_version() -> None:
    """lmcache/vllm-openai counts LMCache's releases: neither entry point nor arguments follow."""
    compose = (
        "services:\n  llm:\n    image: lmcache/vllm-openai:v0.4.3\n"
        "    command: org/model --disable-log-requests\n"
    )
    given = facts(compose, "compose.yaml")
    assert given[1].model.value == "org/model"
    (finding,) = found(argument_removed, given)
    assert (finding.severity, finding.confidence) == ("warning", "possible")


LOWER = """apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: chat}
spec:
  model: {uri: "hf://org/model", name: org/model}
  parallelism: {tensor: 2}
  template:
    containers:
    - name: main
      env:
      - {name: VLLM_ADDITIONAL_ARGS, value: "--max-model-len 4096 --kv_transfer_config '{\\"a\\": 1}'"}
      resources: {limits: {nvidia.com/gpu: "2"}}
      livenessProbe: {httpGet: {path: /health, port: 8000}, initialDelaySeconds: 5}
  prefill:
    parallelism: {tensor: 4}
    template:
      containers:
      - name: main
        resources: {limits: {nvidia.com/gpu: "2"}}
"""


def test_an_inference_service_without_a_command() -> None:
    """The controller writes the command; probes and volumes that are not in the file are its own."""
    decode, prefill = map(facts_of, launches_in(LOWER, "llm.yaml"))
    options = decode[1]
    assert options.model.value == "org/model"
    assert options.get("max_model_len") == 4096
    assert options.get("kv_transfer_config") == {"a": 1}
    assert decode[0].container.probes == ()
    assert found(gpu_count, decode) == []
    (finding,) = found(gpu_count, prefill)
    assert finding.message == "main asks for 2 GPUs; tensor parallel size 4 needs 4"
    assert finding.evidence[0].line == 19


def test_pods_of_other_resources() -> None:
    text = (
        "apiVersion: workload.example/v1\nkind: ModelServing\nmetadata: {name: m}\nspec:\n"
        "  template:\n    roles:\n    - name: decode\n      entryTemplate:\n        spec:\n"
        "          containers:\n          - name: leader\n            image: vllm/vllm-openai:v0.20.0\n"
        "            args: [m, --tensor-parallel-size=8, --pipeline-parallel-size=2]\n"
        '            resources: {limits: {nvidia.com/gpu: "8"}}\n'
    )
    given = facts(text, "serving.yaml")
    assert given[0].name == "serving.yaml: ModelServing/m: decode: leader"
    assert examine(gpu_count, *given).outcome == "blocked"


def test_values_of_the_production_stack() -> None:
    text = (
        "servingEngineSpec:\n  modelSpec:\n  - name: a\n    repository: vllm/vllm-openai\n"
        "    tag: v0.20.0\n    modelURL: org/model\n    requestGPU: 1\n    vllmConfig:\n"
        "      tensorParallelSize: 2\n      enablePrefixCaching: false\n"
        "      extraArgs: [--max-modl-len=4096]\n"
    )
    given = facts(text, "values.yaml")
    assert given[1].get("tensor_parallel_size") == 2
    assert given[1].get("enable_prefix_caching") is False
    (finding,) = found(argument_unknown, given)
    assert (finding.about, finding.evidence[0].line) == ("--max-modl-len", 11)


@pytest.mark.parametrize(
    "more", ["--device /dev/kfd", "-e ROCM_PATH=/opt/rocm", "-e VLLM_TARGET_DEVICE=rocm"]
)
def test_containers_for_other_devices(more: str) -> None:
    given = script(f"docker run {more} vllm/vllm-openai:v0.20.0 org/model")
    assert examine(gpu_missing, *given).outcome == "not_applicable"


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        ("HF_TOKEN=$HF_TOKEN", False),
        ("HF_TOKEN={{ .Values.token }}", False),
        ("HF_TOKEN=${HF_TOKEN:-hf_0123456789abcdef01}", True),
        ("SCCACHE_S3_NO_CREDENTIALS=0", False),
        ("GPG_KEY=A035C8C19219BA821ECEA86B64E628F8D684696D", False),
        ("VLLM_API_KEY=s3cret-of-mine", True),
    ],
)
def test_keys_and_what_only_sounds_like_one(variable: str, told: bool) -> None:
    name, _, value = variable.partition("=")
    (launch,) = launches_in(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: e\n"
        f"    image: vllm/vllm-openai:v0.20.0\n    args: [m]\n    env: [{{name: {name}, "
        f'value: "{value}"}}]\n',
        "pod.yaml",
    )
    assert len(found(key_exposed, [launch])) == told


def test_remote_code_of_a_folder_reads_as_a_sentence() -> None:
    (finding,) = found(remote_code, script("vllm serve /model --trust-remote-code"))
    assert finding.message == (
        "--trust-remote-code runs whatever Python code is in the folder /model"
    )


@pytest.mark.parametrize(
    ("name", "told"),
    [("VLLM_ENABLE_CHUNKED_PROCESSING", False), ("VLLM_LOGING_LEVEL", True)],
)
def test_variables_that_are_no_slip_of_the_pen(name: str, told: bool) -> None:
    (launch,) = launches_in(f"export {name}=1\nvllm serve m\n", "a.sh")
    table = vllm_table(launch, None, None, EngineQuestion(name="vllm", version="0.29.0"))
    options = engine_options(launch, table)
    assert len(found(variable_unread, [launch, options, table])) == told


def test_a_method_without_a_number_of_tokens() -> None:
    (finding,) = found(argument_conflict, script("vllm serve m --speculative-config.method ngram"))
    assert "no num_speculative_tokens" in finding.message
    assert not found(
        argument_conflict,
        script("vllm serve m --speculative-config.method mtp"),  # the checkpoint says how many
    )


def test_what_is_not_known_is_said_as_it_is_written() -> None:
    given = facts(
        'import os\nfrom vllm import LLM\nLLM(os.environ["M"], quantization="fp8")\n', "a.py"
    )
    assert given[1].model.text == "os.environ['M']"
    assert str(given[1].model.value) == "os.environ['M']"


def test_the_hugging_face_runtime_of_kserve() -> None:
    """Its own options do not reach vLLM; which vLLM it holds is not in the file."""
    text = (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: q}\n"
        "spec:\n  predictor:\n    model:\n      modelFormat: {name: huggingface}\n"
        "      args: [--model_name=q, --max_length, '512', --backend=vllm, --max-model-len=8192,\n"
        "        --disable-log-requests]\n"
        '      storageUri: "hf://org/model"\n'
        '      resources: {limits: {nvidia.com/gpu: "1"}}\n'
    )
    given = facts(text, "isvc.yaml")
    assert given[1].model.value == "org/model"
    assert given[1].get("served_model_name") == ["q"]
    assert found(argument_unknown, given) == []
    (finding,) = found(argument_removed, given)
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("vllm serve <model> --master-addr <HEAD_NODE_IP> --port 8000", "<model>"),
        ("ACCOUNT=<account> vllm serve az://<container>/<path> --port 8000", "<container>"),
    ],
)
def test_placeholders_of_documentation_stand_for_values(line: str, model: str) -> None:
    given = script(line)
    assert given[1].model.value == Unknown(model)
    assert given[1].get("port") == 8000
    assert not found(model_unnamed, given)
    assert not found(argument_value, given)


def test_redirections_stay_redirections() -> None:
    given = script("vllm serve m < in.txt > out.log 2>&1")
    assert [word.text for word in given[0].words] == ["m"]


def test_a_default_within_an_expression_is_a_key_too() -> None:
    """${A:-KEY} and {{ ... | default "KEY" }} bring a value; {{ .Values.a }} and $A bring none."""
    (launch,) = launches_in(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: e\n"
        "    image: vllm/vllm-openai:v0.20.0\n"
        "    args: [m, '--api-key={{ .Values.k | default \"own-one-1\" }}', --api-key,\n"
        "      '{{ .Values.k | default \"own-two-2\" }}', --api-key, '{{ .Values.k }}']\n"
        "    env:\n    - {name: HF_TOKEN, value: '{{ .Values.t | default \"own-three-3\" }}'}\n"
        "    - {name: A_TOKEN, value: '${A:-own-four-4}'}\n    - {name: B_TOKEN, value: $B}\n",
        "pod.yaml",
    )
    shown = repr(masked(launch))
    assert "own-" not in shown
    assert "{{ .Values.k }}" in shown
    assert "'$B'" in shown


@pytest.mark.parametrize(
    ("ids", "gpus"), [('["0", "0"]', 1), ('["0,1"]', 2), ('["all"]', "all"), ('["0", "1"]', 2)]
)
def test_a_gpu_that_is_named_twice_is_one(ids: str, gpus: int | str) -> None:
    (launch,) = launches_in(
        "services:\n  a:\n    image: vllm/vllm-openai:v0.20.0\n    command: m -tp 2\n    deploy:\n"
        "      resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu], "
        f"device_ids: {ids}}}]}}}}\n",
        "compose.yaml",
    )
    assert launch.container is not None
    assert launch.container.gpus == gpus
    (run,) = launches_in(
        "#!/bin/sh\ndocker run --gpus '\"device=0,0\"' vllm/vllm-openai:v0.20.0 m\n", "a.sh"
    )
    assert run.container is not None
    assert run.container.gpus == 1
