"""Metrics of all engines and versions, from text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doctor_process import Run
from hypothesis import given
from hypothesis import strategies as st

from infer_doctor.server.exposition import is_exposition
from infer_doctor.server.metrics import Histogram, between, read

REAL = Path(__file__).parent.parent / "captures" / "metrics" / "vllm-0.32-cpu.prom"

OLD = """# HELP vllm:num_requests_running Number of requests currently running on GPU.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 4.0
vllm:num_requests_waiting{model_name="m"} 7.0
vllm:num_requests_swapped{model_name="m"} 0.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.98
vllm:num_preemptions_total{model_name="m"} 3.0
vllm:generation_tokens_total{model_name="m"} 812.0
vllm:time_per_output_token_seconds_bucket{le="0.01",model_name="m"} 90.0
vllm:time_per_output_token_seconds_bucket{le="0.025",model_name="m"} 100.0
vllm:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 100.0
vllm:time_per_output_token_seconds_count{model_name="m"} 100.0
vllm:time_per_output_token_seconds_sum{model_name="m"} 0.18
vllm:time_in_queue_requests_count{model_name="m"} 10.0
vllm:time_in_queue_requests_sum{model_name="m"} 25.0
"""
"""As V0 of vLLM 0.6.4 to 0.8 names them."""

TRITON = """# HELP nv_trt_llm_request_metrics TRT LLM request metrics
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 5
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 2
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 50
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 200
nv_trt_llm_general_metrics{general_type="iteration_counter",model="tensorrt_llm",version="1"} 88
nv_trt_llm_general_metrics{general_type="timestamp",model="tensorrt_llm",version="1"} 1700074049
nv_inference_request_success{model="ensemble",version="1"} 12
nv_inference_exec_count{model="ensemble",version="1"} 12
nv_inference_pending_request_count{model="ensemble",version="1"} 0
"""

TRTLLM = """trtllm_num_requests_running{model_name="m"} 2.0
trtllm_num_requests_waiting{model_name="m"} 1.0
trtllm_kv_cache_utilization{model_name="m"} 0.25
trtllm_request_success_total{finished_reason="stop",model_name="m"} 9.0
trtllm_request_error_total{http_code="400",model_name="m"} 2.0
trtllm_generation_tokens_total{model_name="m"} 900.0
trtllm_request_prefill_time_seconds_count{model_name="m"} 4.0
trtllm_request_prefill_time_seconds_sum{model_name="m"} 0.4
trtllm_time_to_first_token_seconds_count{model_name="m"} 4.0
trtllm_time_to_first_token_seconds_sum{model_name="m"} 0.8
"""

ITERATIONS = [
    {"iter": 7, "numActiveRequests": 1, "numQueuedRequests": 0},
    {
        "iter": 8,
        "iterLatencyMS": 16.5,
        "numActiveRequests": 3,
        "numQueuedRequests": 2,
        "kvCacheStats": {"usedNumBlocks": 30, "maxNumBlocks": 120},
    },
]


def test_a_real_scrape() -> None:
    scrape = read(REAL.read_text())
    assert scrape is not None
    state = scrape.engines["0"]
    assert (scrape.kind, state.running, state.tokens, state.prompt_tokens) == ("vllm", 0, 4, 9)
    assert scrape.histograms["itl"].count == 3
    assert scrape.histograms["itl"].quantile(0.5) is None  # all below the first bound
    assert {"ttft", "itl", "queue", "prefill", "decode", "e2e"} <= scrape.histograms.keys()


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        (OLD, "vllm", (4, 7, 0.98)),
        (OLD.replace("vllm:", "ray_vllm_"), "vllm", (4, 7, 0.98)),
        (OLD.replace("vllm:", ""), "nim", (4, 7, 0.98)),
        (TRITON, "triton", (2, 5, 0.25)),
        (TRTLLM, "tensorrt-llm", (2, 1, 0.25)),
        (TRTLLM.replace("trtllm_", "trtllm:"), "tensorrt-llm", (2, 1, 0.25)),
        (json.dumps(ITERATIONS), "tensorrt-llm", (3, 2, 0.25)),
    ],
)
def test_names(text: str, kind: str, values: tuple[float, ...]) -> None:
    scrape = read(text)
    assert scrape is not None
    state = scrape.engines["0"]
    assert (scrape.kind, (state.running, state.waiting, state.kv)) == (kind, values)


def test_steps_of_an_engine_and_not_its_finished_requests() -> None:
    """Only the first tell that it goes on."""
    triton, prometheus = read(TRITON), read(TRTLLM)
    rows = read(json.dumps([{**ITERATIONS[1], "numCompletedRequests": 1}]))
    assert triton is not None
    assert prometheus is not None
    assert rows is not None
    assert triton.engines["0"].iterations == 88
    assert (prometheus.engines["0"].iterations, prometheus.engines["0"].tokens) == (None, None)
    assert (rows.engines["0"].iterations, rows.engines["0"].finished) == (8, None)
    assert prometheus.engines["0"].errors == 2
    assert prometheus.histograms["prefill"].count == 4


def test_a_triton_of_another_backend() -> None:
    scrape = read("nv_inference_request_success 3\nnv_inference_pending_request_count 2\n")
    assert scrape is not None
    state = scrape.engines["0"]
    assert (scrape.kind, state.waiting, state.finished, state.kv) == ("triton", 2, 3, None)


def test_old_histograms_have_a_mean_and_no_quantile_of_the_first_bucket() -> None:
    scrape = read(OLD)
    assert scrape is not None
    pace = between("m", scrape, None).paces["itl"]
    assert pace.mean == pytest.approx(0.0018)
    assert pace.median is None
    assert between("m", scrape, None).paces["queue"].mean == 2.5


def test_a_quantile_within_the_buckets_is_interpolated() -> None:
    buckets = {0.01: 10.0, 0.02: 30.0, 0.04: 40.0, float("inf"): 40.0}
    histogram = Histogram(total=0.8, count=40, buckets=buckets)
    assert histogram.quantile(0.5) == pytest.approx(0.015)
    assert histogram.quantile(0.2) is None
    late = Histogram(total=9, count=40, buckets={0.01: 1, 0.02: 2, float("inf"): 40})
    assert late.quantile(0.9) is None


def test_what_was_before_the_first_scrape_does_not_count() -> None:
    before, after = read(OLD), read(OLD.replace("} 25.0", "} 26.0").replace("} 10.0", "} 12.0"))
    assert before is not None
    assert after is not None
    assert between("m", before, after).paces["queue"].mean == 0.5


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("process_start_time_seconds 1.7e+09\n", "process_start_time_seconds 1.8e+09\n"),
        ("vllm:prompt_tokens_total 90\n", "vllm:prompt_tokens_total 80\n"),
        ("vllm:time_to_first_token_seconds_count 9\nvllm:time_to_first_token_seconds_sum 9\n",) * 2,
    ],
)
def test_scrapes_of_two_processes_are_not_compared(earlier: str, later: str) -> None:
    """Replicas behind one address: 4000 preemptions of the other are none of the last second."""
    grown = OLD.replace(" 3.0\n", " 4003.0\n").replace("812.0", "90812.0")
    one, other = read(OLD + earlier), read(grown + later.replace("_count 9", "_count 8"))
    assert one is not None
    assert other is not None
    found = between("m", one, other, seconds=1.0)
    assert (found.second, found.seconds) == ({}, None)
    assert found.first["0"].preemptions == 4003
    assert "two processes" in found.gaps[0]
    same = read(grown + earlier)
    assert between("m", one, same, seconds=1.0).gained("preemptions") == 4000


def test_each_engine_of_a_data_parallel_server() -> None:
    line = 'vllm:num_requests_running{engine="%d",model_name="m"} %d.0\n'
    scrape = read("".join(line % (number, number) for number in range(3)))
    assert scrape is not None
    assert [state.running for state in scrape.engines.values()] == [0, 1, 2]


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "[[]]", "{" * 5000, "<html>", "vllm:x{ 3", "vllm: NaN", "x 1"]
)
def test_what_holds_nothing(text: str) -> None:
    scrape = read(text)
    assert scrape is None or not scrape.engines


@given(st.text(alphabet='vllm:nu_req{}"\\=,. 0123456789\ne#le', max_size=300))
def test_any_text_is_read(text: str) -> None:
    read(text)
    is_exposition(text)


def test_saved_files(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_text(OLD)
    (tmp_path / "b.prom").write_text(OLD.replace(" 3.0\n", " 9.0\n").replace("812.0", "900.0"))
    done = Run(tmp_path)("probe", "a.prom", "b.prom", "--format", "json")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert report["primary"]["check"] == "server-kv-full"
    assert report["target"]["engine"]["name"] == "vllm"


@pytest.mark.parametrize("number", ["9" * 400, "NaN", "-Infinity"])
def test_a_number_that_is_none_is_not_known(number: str) -> None:
    found = read(f'[{{"iter": {number}, "numActiveRequests": 3}}]')
    assert found is not None
    assert (found.engines["0"].iterations, found.engines["0"].running) == (None, 3)
