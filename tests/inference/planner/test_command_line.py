"""The planner's command line: its JSON, its errors in words, and that it needs nothing but Python."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest

from inference.planner import device_by_product, this_machine
from inference.planner.__main__ import main
from inference.planner.gguf_header import TYPES, read_gguf
from tests.inference.planner import published
from tests.tiny_models import tiny_llama, write_tiny_gguf, write_tiny_llama

KEYS = {"parameters", "weights_bytes", "attention", "kv_bytes_per_token", "kv_bytes", "activation_bytes", "total_bytes",
        "fits", "max_concurrency", "max_context", "flops_per_token", "ttft_floor_s", "tpot_floor_s", "lines"}
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(published.LLAMA_70B))
    return path


def planned(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main([*map(str, arguments), "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_the_json_has_every_key(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = planned(capsys, config, "--context", 8192, "--concurrency", 4, "--device", "H200")
    assert set(made) >= KEYS
    assert set(made["parameters"]) == {"total", "active"}
    assert set(made["flops_per_token"]) == {"prefill", "decode"}
    assert all(set(line) == {"name", "formula", "value", "unit"} for line in made["lines"])
    assert made["kv_bytes"] == 4 * 8192 * made["kv_bytes_per_token"]
    parts = ("weights_bytes", "adapter_bytes", "kv_bytes", "activation_bytes", "runtime_bytes")
    assert made["total_bytes"] == sum(made[part] for part in parts)


def test_it_runs_with_the_standard_library_alone(config: Path) -> None:
    command = [sys.executable, "-S", "-E", "-m", "inference.planner", str(config), "--memory", "80e9", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["attention"] == "gqa"


def test_what_does_not_fit_says_what_would(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = planned(capsys, config, "--context", 8192, "--device", "H100")
    assert (made["fits"], made["max_concurrency"], made["max_context"]) == (False, 0, 0)
    words = " ".join(made["reasons"])
    assert "are missing" in words and "in int8" in words and "tensor parallelism" in words
    made = planned(capsys, config, "--context", 100_000, "--concurrency", 8, "--device", "H200", "--tp", 2)
    words = " ".join(made["reasons"])
    assert f"With {made['max_concurrency']:,} requests at once" in words
    assert f"With a context of {made['max_context']:,} tokens" in words


@pytest.mark.parametrize("wish", [("--context", "max_context"), ("--concurrency", "max_concurrency")])
def test_the_limits_are_exact(wish: tuple[str, str], config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = ["--dtype", "fp8", "--device", "H100"]
    option, key = wish
    most = planned(capsys, config, *usual, "--context", 2048)[key]
    assert most > 0
    others = ["--context", 2048] if option == "--concurrency" else []
    assert planned(capsys, config, *usual, *others, option, most)["fits"]
    assert not planned(capsys, config, *usual, *others, option, most + 1)["fits"]


def test_a_given_device_has_floors_once_its_speed_is_given(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = planned(capsys, config, "--memory", 200e9, "--context", 1024)
    assert made["ttft_floor_s"] is None and made["tpot_floor_s"] is None
    made = planned(capsys, config, "--memory", 200e9, "--context", 1024, "--bandwidth", 1e12, "--flops", 1e15)
    weights = made["weights_bytes"] - 2 * 128_256 * 8192  # all but the input embedding are read
    assert made["tpot_floor_s"] == pytest.approx((weights + made["kv_bytes"]) / 1e12, rel=1e-6)
    assert made["ttft_floor_s"] == pytest.approx(1024 * made["flops_per_token"]["prefill"] / 1e15, rel=0.02)


def test_kv_types_and_weight_types(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = planned(capsys, config, "--device", "H200", "--dtype", "bf16")
    small = planned(capsys, config, "--device", "H200", "--dtype", "fp8", "--kv-dtype", "fp8")
    assert small["kv_bytes_per_token"] * 2 == plain["kv_bytes_per_token"]
    assert 0.5 < small["weights_bytes"] / plain["weights_bytes"] < 0.53  # embeddings stay in 16 bits


@pytest.mark.parametrize(("changes", "words"), [
    ({"num_hidden_layers": -1}, "num_hidden_layers: is '-1'"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers: is '1000000000', not a whole number from 1 to 10,000"),
    ({"hidden_size": "8192"}, "hidden_size: is '8192', not a whole number"),
    ({"hidden_size": 10**30}, "hidden_size: is"),
    ({"hidden_size": 1.5}, "hidden_size: is '1.5'"),
    ({"vocab_size": None}, "vocab_size: is missing"),
    ({"num_key_value_heads": 7}, "num_attention_heads: 64 is not a multiple"),
    ({"model_type": None}, "model_type: is missing"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings: is 'no', not true or false"),
    ({"layer_types": ["full_attention"]}, "layer_types: is not a list of 80 texts"),
    ({"torch_dtype": "int2"}, "dtype: 'int2' is not known"),
])
def test_impossible_configurations_are_refused_in_words(
    changes: dict[str, Any], words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(json.dumps(published.LLAMA_70B | changes))
    assert main([str(config)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "words"), [
    (["--device", "H9000"], "'H9000' is not known (known: H100, H200, A100, L40S, RTX 4090, cpu)"),
    (["--tp", "3"], "3 ranks can't share 64 attention heads evenly"),
    (["--tp", "0"], "0 ranks can't share"),
    (["--context", "0"], "context: must be a positive number of tokens"),
    (["--concurrency", "0"], "concurrency: must be 1 to"),
    (["--kv-dtype", "int3"], "kv_dtype: 'int3' is not known"),
])
def test_impossible_wishes_are_refused_in_words(
    arguments: list[str], words: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(config), "--memory", "80e9", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_files_that_are_no_model_are_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken, truncated, empty = tmp_path / "broken.json", tmp_path / "m.gguf", tmp_path / "empty"
    empty.mkdir()
    broken.write_text("{")
    truncated.write_bytes(b"GGUF\3\0\0\0\1\0\0\0")
    for path, words in ((tmp_path / "no", "does not exist"), (broken, "is not valid JSON"),
                        (truncated, "past the end of the file"), (empty, "config.json: can't be read")):
        assert main([str(path)]) == 2
        assert words in capsys.readouterr().err


def test_a_folder_and_a_gguf_file_are_counted_from_their_headers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = sum(tensor.numel() for tensor in tiny_llama().parameters())
    write_tiny_llama(tmp_path, max_shard_size="60KB")
    folder = planned(capsys, tmp_path, "--memory", 1e9)
    write_tiny_gguf(tmp_path / "m.gguf")
    file = planned(capsys, tmp_path / "m.gguf", "--memory", 1e9)
    for made in (folder, file):
        assert made["parameters"] == {"total": expected, "active": expected}
        assert made["weights_bytes"] == 4 * expected
        assert made["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * (4 if made is folder else 2)


def test_gguf_types_are_those_of_the_gguf_package(tmp_path: Path) -> None:
    for kind in gguf.GGMLQuantizationType:
        if kind.value in TYPES:
            assert TYPES[kind.value] == (kind.name, *gguf.GGML_QUANT_SIZES[kind])
    write_tiny_gguf(tmp_path / "m.gguf", quantisation=gguf.GGMLQuantizationType.Q8_0)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    assert read_gguf(tmp_path / "m.gguf")[1].nbytes == sum(int(tensor.n_bytes) for tensor in reader.tensors)


def test_the_table_shows_the_arithmetic(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(config), "--device", "H200", "--context", "1024"]) == 0
    text = capsys.readouterr().out
    assert "2 (key and value) × 80 layers × 8 KV heads × 128 × 2 bytes (bfloat16)" in text
    assert "It does not fit." in text.splitlines()
    assert "With weights in int8" in text


@pytest.mark.parametrize(("product", "mebibytes", "name"), [
    ("NVIDIA H200", 143_771, "H200"), ("NVIDIA H100 80GB HBM3", 81_559, "H100"),
    ("NVIDIA A100-SXM4-80GB", 81_920, "A100"), ("NVIDIA L40S", 46_068, "L40S"),
    ("NVIDIA GeForce RTX 4090", 24_564, "RTX 4090"), ("NVIDIA H100 PCIe", 81_559, None),
    ("NVIDIA A100-SXM4-40GB", 40_960, None), ("NVIDIA T4", 15_360, None),
])
def test_devices_are_known_by_what_nvidia_smi_calls_them(product: str, mebibytes: int, name: str | None) -> None:
    known = device_by_product(product, mebibytes * 2**20)
    assert (known and known.name) == name


def test_this_machine_has_memory_bandwidth_and_flops() -> None:
    machine = this_machine()
    assert machine.memory_bytes > 10**9
    assert 10**9 < machine.bandwidth < 10**13
    assert 10**9 < machine.flops_for(32) < 10**15
