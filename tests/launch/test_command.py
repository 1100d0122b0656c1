"""Command lines: wrappers, variables, shells, containers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infer_doctor.host import Unavailable
from infer_doctor.launch.command import all_of, read
from infer_doctor.launch.model import Launch
from infer_doctor.launch.sizes import option, ranks
from infer_doctor.launch.variables import variable


def words(launch: Launch) -> list[str]:
    return [word.text for word in launch.words]


@pytest.mark.parametrize(
    ("command", "engine", "entry", "rest"),
    [
        ("vllm serve m --port 1", "vllm", "serve", "m --port 1"),
        ("/opt/venv/bin/vllm serve m", "vllm", "serve", "m"),
        ("env A=b vllm serve m", "vllm", "serve", "m"),
        ("env -u X -C /d A=b vllm serve m", "vllm", "serve", "m"),
        ("nohup nice -n 5 time -p vllm serve m", "vllm", "serve", "m"),
        ("numactl -N 0 --membind=0 vllm serve m", "vllm", "serve", "m"),
        ("taskset -c 0-7 vllm serve m", "vllm", "serve", "m"),
        ("taskset 0xff vllm serve m", "vllm", "serve", "m"),
        ("timeout -s KILL 10m vllm serve m", "vllm", "serve", "m"),
        ("sudo -E -u me vllm serve m", "vllm", "serve", "m"),
        ("uv run --with vllm vllm serve m", "vllm", "serve", "m"),
        ("conda run -n x vllm serve m", "vllm", "serve", "m"),
        ("infer-doctor preflight --wait 9 --warn-only -- vllm serve m", "vllm", "serve", "m"),
        ("python3 /d/infer-doctor.pyz preflight -- env A=b vllm serve m", "vllm", "serve", "m"),
        ("python -m infer_doctor preflight -- trtllm-serve m", "tensorrt-llm", "trtllm-serve", "m"),
        (
            "python -u -m vllm.entrypoints.openai.api_server --model m",
            "vllm",
            "api_server",
            "--model m",
        ),
        ("python3.12 /opt/venv/bin/vllm serve m", "vllm", "serve", "m"),
        ("vllm bench serve --model m", "vllm", "bench", "serve --model m"),
        ("srun -N 2 --ntasks-per-node 1 vllm serve m", "vllm", "serve", "m"),
        ("trtllm-serve m --tp_size 2", "tensorrt-llm", "trtllm-serve", "m --tp_size 2"),
        ("trtllm-serve serve m", "tensorrt-llm", "trtllm-serve", "m"),
        ("trtllm-serve disaggregated -c f", "tensorrt-llm", "trtllm-serve disaggregated", "-c f"),
        (
            "mpirun -n 2 -x A=b -mca btl tcp trtllm-llmapi-launch trtllm-serve m",
            "tensorrt-llm",
            "trtllm-serve",
            "m",
        ),
        ("trtllm-build --checkpoint_dir c", "tensorrt-llm", "trtllm-build", "--checkpoint_dir c"),
        (
            "torchrun --nproc-per-node 2 -m vllm.entrypoints.openai.api_server",
            "vllm",
            "api_server",
            "",
        ),
        ("python serve.py -tp 2", None, "", "serve.py -tp 2"),
        ("", None, "", ""),
    ],
)
def test_wrappers_are_taken_off(command: str, engine: str | None, entry: str, rest: str) -> None:
    launch = read(command.split())
    assert (launch.engine, launch.entry, " ".join(words(launch))) == (engine, entry, rest)
    assert launch.command == tuple(command.split())


def test_variables_of_the_command() -> None:
    launch = read(["env", "A=1", "nohup", "B=2", "vllm", "serve", "m"])
    assert [(row.name, row.value) for row in launch.environment] == [("A", "1"), ("B", "2")]
    assert variable(launch, "A") == "1"
    assert variable(launch, "C") is None


def test_a_shell_in_the_command() -> None:
    text = (
        "source /v/bin/activate && export A=1; cd /srv && exec vllm serve $MODEL --port ${P:-8000}"
    )
    launch = read(["bash", "-lc", text])
    assert words(launch) == ["$MODEL", "--port", "8000"]
    assert launch.words[0].unknown == "$MODEL"
    assert launch.working_folder == "/srv"
    assert variable(launch, "A") == "1"


def test_positional_parameters_of_a_shell() -> None:
    launch = read(["sh", "-c", 'vllm serve "$1" "$@"', "sh", "m", "--port", "1"])
    assert words(launch) == ["m", "m", "--port", "1"]


def test_two_engines_in_one_command_are_two_launches() -> None:
    first, second = all_of(["bash", "-c", "vllm serve a & vllm serve b & wait"])
    assert (words(first), words(second)) == (["a"], ["b"])
    assert first.name != second.name


def test_docker_run() -> None:
    command = (
        "docker run -d --gpus device=1,2 --ipc host -e A=1 -eB=2 --env-file x.env -p 80:8000 "
        "-v /m:/models:ro --shm-size 1g vllm/vllm-openai:v0.10.0 --model /models/x -tp 2"
    )
    launch = read(command.split())
    assert (launch.kind, launch.machine, launch.entry) == ("docker-run", "another", "api_server")
    assert words(launch) == ["--model", "/models/x", "-tp", "2"]
    container = launch.container
    assert container is not None
    assert (container.gpus, container.gpu_devices) == (2, ("1", "2"))
    assert (container.ipc, container.shm_size, container.ports[0].host) == ("host", 1 << 30, 80)
    assert container.volumes[0].read_only
    assert variable(launch, "B") == "2"
    with pytest.raises(Unavailable, match=r"x\.env, which may set C"):
        variable(launch, "C")


def test_docker_with_its_own_entrypoint() -> None:
    command = ["docker", "run", "--entrypoint", "bash", "img", "-c", "vllm serve m -tp 2"]
    assert ranks(read(command)) == 2
    assert read(["docker", "build", "."]).engine is None


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("vllm serve m", 1),
        ("vllm serve m -tp 2 --pipeline_parallel_size=3", 6),
        ("vllm serve m -tp x", None),
        ("trtllm-serve m --tp_size 2 --pp_size 2", 4),
    ],
)
def test_ranks(command: str, count: int | None) -> None:
    assert ranks(read(command.split())) == count


def test_words_that_may_be_any_options_leave_the_ranks_unknown() -> None:
    launch = read(["bash", "-c", "vllm serve m $ARGS"])
    assert ranks(launch) is None
    assert option(launch, "--port") is None


@settings(deadline=None)
@given(
    st.lists(
        st.text(max_size=12)
        | st.sampled_from(["bash", "-c", "env", "docker", "run", "mpirun", "--", "-n"])
    )
)
def test_any_words_are_read(command: list[str]) -> None:
    assert all_of(command)


@settings(deadline=None)
@given(st.text(alphabet="ab $\"'\\`{}()<>|&;#=\n\t@:-+*[]!1", max_size=80))
def test_any_shell_text_is_read(text: str) -> None:
    assert all_of(["bash", "-c", text])
