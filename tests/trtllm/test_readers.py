"""The readers: config.pbtxt, folders of four eras, what is installed, command lines, hostile files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trtllm_files import (
    ENSEMBLE,
    checkpoint,
    engine,
    facts,
    old_engine,
    plan,
    read_engine,
    repository,
    triton,
)

from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.engine_options import EngineQuestion
from infer_doctor.facts.environment import Distribution, Distributions
from infer_doctor.facts.triton import triton_repository
from infer_doctor.facts.trt_engine import trt_engine
from infer_doctor.facts.trt_release import trt_release
from infer_doctor.hands.trtllm import trt_folder
from infer_doctor.host import Absent, Host
from infer_doctor.launch.command import read as read_command
from infer_doctor.live import LiveHost
from infer_doctor.targets import NoTarget, look
from infer_doctor.trtllm.folder import folder_of, plan_version
from infer_doctor.trtllm.judge import ranks_started
from infer_doctor.trtllm.pbtxt import BadText, read


def problem(text: str) -> str:
    """What is wrong with a text; empty when it can be read."""
    try:
        read(text)
    except BadText as error:
        return str(error)
    return ""


class TestPbtxt:
    def test_forms_of_the_language(self) -> None:
        text = """
        # a comment with { and "
        name: "a" 'b'  # strings side by side are one
        max_batch_size: 8;
        dims: [ -1, 2 ], list <x: 1>
        input [ { name: "i" }, { name: "j" optional: true } ]
        parameters: { key: "k" value: { string_value: "a \\"quoted\\" one" } }
        """
        found = read(text)
        assert found.text("name") == "ab"
        assert found.text("max_batch_size") == "8"
        assert [value.value for value in found.all("dims")] == ["-1", "2"]
        assert [row.text("name") for row in found.messages("input")] == ["i", "j"]
        value = next(found.messages("parameters")).message("value")
        assert value is not None
        assert value.text("string_value") == 'a "quoted" one'
        assert found.line("max_batch_size") == 4

    def test_templates_are_words(self) -> None:
        found = read('max_batch_size: ${triton_max_batch_size}\nbackend: "${triton_backend}"\n')
        assert found.text("max_batch_size") == "${triton_max_batch_size}"

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ('a: "open', 1),
            ("a: {\n b: 1\n", 3),
            ("a: 1\nb: ]", 2),
            ("a 1", 1),
            ("a:\n\n}", 3),
            ("x: [1, 2", 1),
        ],
    )
    def test_mistakes_name_their_line(self, text: str, line: int) -> None:
        with pytest.raises(BadText, match=f"^{line}: "):
            read(text)

    def test_cut_after_every_character(self) -> None:
        whole = ENSEMBLE % {"ensemble_batch": 8}
        read(whole)
        for end in range(len(whole)):
            assert re.match(r"(?:\d+: |$)", problem(whole[:end]))

    @settings(max_examples=300, deadline=None)
    @given(st.text(alphabet="ab:{}[]<>\"'#\n ${},;1", max_size=60))
    def test_any_text(self, text: str) -> None:
        assert re.match(r"(?:\d+: |$)", problem(text))

    def test_deep_nesting_ends(self) -> None:
        with pytest.raises(BadText, match="nested too deep"):
            read("a {" * 5000)


class TestFolders:
    def test_forms(self, tmp_path: Path) -> None:
        current = read_engine(engine(tmp_path / "e", tp=2, pp=2))
        assert (current.form, current.version, current.world_size) == ("current", "0.14.0", 4)
        assert (current.size("tp_size"), current.limit("max_batch_size")) == (2, 64)
        assert current.ranks[3].plan == "10.4.0.26"
        old = read_engine(old_engine(tmp_path / "old"))
        assert (old.form, old.world_size, old.ranks[0].plan) == ("old", 1, "9.2.0.5")
        ckpt = read_engine(checkpoint(tmp_path / "c", tp=2))
        assert (ckpt.kind, ckpt.world_size, len(ckpt.ranks)) == ("checkpoint", 2, 2)

    def test_other_folders_are_none_of_ours(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": []}')
        assert folder_of(str(tmp_path), trt_folder(str(tmp_path))) is None

    @pytest.mark.parametrize(
        ("head", "found"),
        [
            (b"", (False, None)),
            (b"ftrt", (False, None)),
            (plan("10.14.1.48"), (True, "10.14.1.48")),
            (b"ftrt\1\0\0\0" + bytes(30), (True, None)),  # another serialisation
            (b"version https://git-lfs.github.com", (False, None)),
        ],
    )
    def test_heads(self, head: bytes, found: tuple[bool, str | None]) -> None:
        assert plan_version(head) == found

    @settings(max_examples=200, deadline=None)
    @given(
        st.dictionaries(
            st.sampled_from(
                ["version", "pretrained_config", "build_config", "builder_config", "architecture"]
            ),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(
                        st.sampled_from(
                            ["mapping", "tp_size", "quantization", "plugin_config", "dtype"]
                        ),
                        inner,
                        max_size=4,
                    )
                ),
                max_leaves=8,
            ),
        )
    )
    def test_any_config(self, config: dict[str, Any]) -> None:
        answer = {
            "files": {"rank0.engine": 10, "config.json": 5},
            "json": {"config.json": config},
            "heads": {"rank0.engine": ""},
            "broken": {},
            "truncated": False,
        }
        found = folder_of("/e", answer)
        assert found is not None
        assert found.world_size is None or found.world_size >= 0
        assert found.limit("max_seq_len") is None
        for name in ("quant_algo", "kv_cache_quant_algo"):
            assert found.quantization(name) is None
        found.plugin("gemm_plugin")

    def test_the_operation_says_what_it_could_not_read(self, tmp_path: Path) -> None:
        path = engine(tmp_path / "e")
        (path / "config.json").write_bytes(b"\xff\xfe{")
        (path / "gone.engine").symlink_to(tmp_path / "nowhere")
        answer = trt_folder(str(path))
        assert set(answer["broken"]) == {"config.json", "gone.engine"}
        assert len(bytes.fromhex(answer["heads"]["rank0.engine"])) == 28

    def test_through_the_child(self, tmp_path: Path) -> None:
        path = engine(tmp_path / "e", tp=2)
        launch, _, options = facts(f"trtllm-serve {path}")
        with LiveHost() as host:
            assert trt_engine(launch, host, options, None).world_size == 2
            again = Host(host.captures.values())
        assert trt_engine(launch, again, options, None).world_size == 2


class TestReleases:
    def installed(self, at: Path, version: str, *modules: str, tensorrt: str | None = None) -> Any:
        package = at / "tensorrt_llm"
        for name in modules:
            (package / name).mkdir(parents=True)
        package.mkdir(exist_ok=True)
        engine_fact = EngineFact(
            name="tensorrt-llm",
            version=version,
            distribution="tensorrt-llm",
            package=str(package),
            build="cuda",
        )
        rows = {}
        if tensorrt is not None:
            rows["tensorrt"] = Distribution(
                name="tensorrt",
                written_name="tensorrt",
                version=tensorrt,
                requires=(),
                requires_python=None,
                installer=None,
                project=None,
                record=True,
                metadata="/site/tensorrt.dist-info",
            )
        distributions = Distributions(by_name=rows, shadowed=(), shared=(), source="/site")
        launch = read_command(["trtllm-serve", "m"])
        with LiveHost() as host:
            return trt_release(launch, host, engine_fact, None, distributions, None)

    @pytest.mark.parametrize(
        ("version", "modules", "era", "engines"),
        [
            ("0.14.0", ("hlapi",), "engine", True),
            ("0.20.0", ("_torch", "llmapi"), "engine-first", True),
            ("1.2.1", ("_torch", "llmapi", "_tensorrt_engine"), "pytorch-first", True),
            ("1.2.1", ("_torch", "llmapi"), "pytorch-only", False),  # the modules decide
            ("1.3.0rc20", ("_torch", "_tensorrt_engine"), "pytorch-first", True),
            ("1.4.0rc1", ("_torch", "llmapi"), "pytorch-only", False),
        ],
    )
    def test_the_era_is_told_by_modules(
        self, tmp_path: Path, version: str, modules: tuple[str, ...], era: str, engines: bool
    ) -> None:
        found = self.installed(tmp_path, version, *modules)
        assert (found.era, found.engine_path) == (era, engines)

    def test_the_installed_tensorrt_counts(self, tmp_path: Path) -> None:
        found = self.installed(tmp_path, "1.2.1", "_torch", tensorrt="10.14.1.48.post1")
        assert (found.tensorrt, found.tensorrt_source) == (
            "10.14.1.48.post1",
            "/site/tensorrt.dist-info",
        )

    @pytest.mark.parametrize(
        ("image", "version"),
        [
            ("nvcr.io/nvidia/tensorrt-llm/release:1.2.1", "1.2.1"),
            ("nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc5", "1.3.0rc5"),
            ("nvcr.io/nvidia/tritonserver:25.06-trtllm-python-py3", "0.20.0"),
            ("nvcr.io/nvidia/tritonserver:26.04-trtllm-python-py3", "1.2.1"),
            ("nvcr.io/nvidia/tritonserver:25.06-py3", None),
            ("registry/own:1.2.1", None),
        ],
    )
    def test_images_by_tag(self, image: str, version: str | None) -> None:
        launch = read_command(["docker", "run", image, "trtllm-serve", "m"])
        assert launch.container is not None
        assert trt_release(launch, None, None, None, None, None).version == version

    def test_another_engine_is_asked_for(self) -> None:
        launch = read_command(["trtllm-serve", "m"])
        question = EngineQuestion(name="vllm", version="0.12.0")
        with pytest.raises(Absent):
            trt_release(launch, None, None, question, None, None)


class TestTargets:
    def test_each_folder_is_told_apart(self, tmp_path: Path) -> None:
        built = engine(tmp_path / "e")
        ckpt = checkpoint(tmp_path / "c")
        repo = repository(tmp_path / "r", built)
        bare = engine(tmp_path / "bare", sizes=[])
        rows = {
            built: ["trtllm-serve", str(built)],
            bare: ["trtllm-serve", str(bare)],
            ckpt: ["trtllm-build", "--checkpoint_dir", str(ckpt)],
            repo: ["tritonserver", "--model-repository", str(repo)],
            repo / "ensemble" / "config.pbtxt": ["tritonserver", "--model-repository", str(repo)],
        }
        for path, words in rows.items():
            (launch,) = look(str(path)).launches
            assert list(launch.command) == words
        with pytest.raises(NoTarget, match="model repository of Triton"):
            look(str(tmp_path))

    def test_a_repository_of_other_models(self, tmp_path: Path) -> None:
        (tmp_path / "r" / "onnx" / "1").mkdir(parents=True)
        (tmp_path / "r" / "onnx" / "config.pbtxt").write_text('backend: "onnxruntime"\n')
        with LiveHost() as host, pytest.raises(Absent, match=r"no model of .* runs TensorRT-LLM"):
            triton_repository(triton(tmp_path / "r"), host, None)


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("mpirun -n 4 trtllm-serve m", 4),
        ("mpirun --allow-run-as-root --oversubscribe -np 8 -x A=1 trtllm-serve m", 8),
        ("mpiexec -n 2 trtllm-serve m", 2),
        ("srun --ntasks=16 -N 2 trtllm-serve m", 16),
        ("srun -n8 trtllm-serve m", 8),
        ("trtllm-serve m", None),
    ],
)
def test_ranks_of_a_line(line: str, ranks: int | None) -> None:
    found = ranks_started(read_command(line.split()))
    assert (found[0] if found else None) == ranks


def test_options_of_a_bench_line() -> None:
    _, _, options = facts(
        "trtllm-bench --model meta/x --model_path /d throughput --dataset f --tp 8 --backend pytorch "
        "--kv_cache_free_gpu_mem_fraction 0.8"
    )
    assert options.model is not None
    assert options.model.value == "/d"
    assert options.get("tensor_parallel_size") == 8
    assert options.get("kv_cache_config.free_gpu_memory_fraction") == 0.8
