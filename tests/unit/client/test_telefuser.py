"""TeleFuser's cache before any service is asked: configuration, keys, what it hands over."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import importlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.e2e.telefuser_host import STEPS, write_pipeline_file
from tests.service_settings import SETTINGS

from skipstone_client.adapters.telefuser.cache_config import MOVED, CacheConfig, read_cache_config
from skipstone_client.adapters.telefuser.cache_factory import CacheServiceFactory
from skipstone_client.adapters.telefuser.queries import LatentOutputs
from skipstone_client.adapters.telefuser.run_key import RunKeys, flow_sigmas
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.latents import compatibility_key
from skipstone_shared.orchestration import CacheMode

SHIM = Path(__file__).parents[3] / "clients" / "cacheseek_shim"
PPL = {"num_inference_steps": STEPS, "sigma_shift": 3.0, "cfg_scale_high": 5.0, "seed": 42}
FIELDS = {"resolution": "720p", "aspect_ratio": "16:9", "task_id": "one", "prompt": "a cat"}
NOBODY = {
    "skipstone_orchestrator_target": "127.0.0.1:1",
    "skipstone_latent_kv_target": "127.0.0.1:1",
    "skipstone_shutdown_timeout_s": 1.0,
}


def config(
    given: Any = None, enable: bool | None = None, mode: str | None = None, **environ: str
) -> CacheConfig:
    return read_cache_config(given, enable, mode, environ)[0]


def test_the_command_line_wins_over_the_file_and_the_file_over_the_defaults() -> None:
    file = {"enable_latent_cache": True, "cache_mode": "write_only", "max_skip_step": None}
    assert config() == CacheConfig()
    assert config(file).cache_mode is CacheMode.WRITE_ONLY
    assert config(file).enable_latent_cache is True
    assert config(file).max_skip_step is None
    assert config(file, False, "read_only").cache_mode is CacheMode.READ_ONLY
    assert config(file, False).enable_latent_cache is False
    assert config({"enable_latent_cache": False}, True).enable_latent_cache is True


def test_the_environment_tells_only_what_the_file_does_not() -> None:
    environ = {"SKIPSTONE_TARGET": "front:1", "SKIPSTONE_LATENT_KV_TARGET": "store:1"}
    told = config({"skipstone_orchestrator_target": "file:1"}, **environ)
    assert told.skipstone_orchestrator_target == "file:1"
    assert told.skipstone_latent_kv_target == "store:1"


def test_a_dataclass_and_an_enum_of_the_hosts_own_are_read_as_a_dict_is() -> None:
    class Mode(enum.Enum):
        READ_ONLY = "read_only"

    @dataclasses.dataclass
    class Theirs:
        enable_latent_cache: bool = True
        cache_mode: Mode = Mode.READ_ONLY
        key_steps: list[int] = dataclasses.field(default_factory=lambda: [10, 5])

    told = config(Theirs())
    assert (told.cache_mode, told.key_steps) == (CacheMode.READ_ONLY, (5, 10))


def test_an_unknown_field_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match="no field key_step; did you mean key_steps"):
        config({"key_step": [5]})
    with pytest.raises(InvalidArgument, match="did you mean rerank_score_threshold"):
        config({"rerank_score_treshold": 0.9})


def test_a_field_that_something_else_decides_on_is_named_with_what_does() -> None:
    given = {"vector_dim": 2048, "rerank_score_threshold": 0.85, "key_steps": [5]}
    _, warnings = read_cache_config(given, None, None, {})
    assert len(warnings) == 2
    assert all(f"CACHE_CONFIG.{name}" in text for name, text in zip(given, warnings, strict=False))
    assert all(where for where in MOVED.values())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cache_mode", "sometimes"),
        ("key_steps", []),
        ("key_steps", [5, "10"]),
        ("key_steps", [0]),
        ("max_skip_step", -1),
        ("rerank_top_k", 0),
        ("rerank_top_k", 101),
        ("skipstone_lookup_timeout_s", "soon"),
        ("enable_latent_cache", "yes"),
    ],
)
def test_a_value_that_cannot_be_used_is_an_error_that_names_the_field(
    field: str, value: Any
) -> None:
    with pytest.raises(InvalidArgument, match=f"CACHE_CONFIG.{field}") as refused:
        config({field: value})
    assert refused.value.allowed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "there is no pipeline file"),
        ("1 / 0\n", "cannot be run"),
        ("CACHE_CONFIG = {}\n", "has no PPL_CONFIG"),
        ("PPL_CONFIG = {}\n", "num_inference_steps"),
        ("PPL_CONFIG = []\n", "PPL_CONFIG"),
        ("PPL_CONFIG = {'num_inference_steps': 4}\nCACHE_CONFIG = 7\n", "CACHE_CONFIG is a int"),
    ],
)
def test_a_pipeline_file_that_does_not_say_enough_ends_the_start(
    tmp_path: Path, text: str | None, why: str
) -> None:
    file = tmp_path / "pipeline.py"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgument, match=why):
        CacheServiceFactory.create_cache_service(ppl_file=str(file), enable_latent_cache=True)


def test_the_module_that_the_host_has_loaded_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "loaded_once.py"
    file.write_text(
        "import pathlib\n"
        "runs = pathlib.Path(__file__).with_suffix('.runs')\n"
        "runs.write_text('x' + (runs.read_text() if runs.exists() else ''))\n"
        "PPL_CONFIG = {'num_inference_steps': 4}\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("loaded_once")
    CacheServiceFactory.create_cache_service(ppl_file=str(file), enable_latent_cache=False)
    assert file.with_suffix(".runs").read_text() == "x"
    del sys.modules["loaded_once"]


def key(ppl: dict[str, Any] | None = None, **fields: Any) -> str:
    run = RunKeys({**PPL, **(ppl or {})}).run({**FIELDS, **fields}, 1)
    return compatibility_key(run.fingerprint)


def test_the_key_rests_on_everything_that_may_matter_and_on_nothing_else() -> None:
    assert key(task_id="two", prompt="a dog", output_path="x.mp4", seed=3) == key()
    assert key({"name": "other", "seed": 7}) == key()
    keys = [
        key(),
        key(resolution="480p"),
        key(aspect_ratio="9:16"),
        key(negative_prompt="red"),
        key(target_video_length=7),
        key({"num_inference_steps": 30}),
        key({"sigma_shift": 5.0}),
        key({"cfg_scale_high": 4.0}),
        key({"boundary": 0.9}),
        key({"sample_solver": "unipc"}),
        key({"model_root": "/models/other"}),
        key({"attn_impl": enum.Enum("Attn", "SDPA").SDPA}),
        key({"dtype": torch.bfloat16}),
    ]
    assert len(set(keys)) == len(keys)


def test_files_count_by_their_content_and_a_file_that_is_gone_by_nothing(tmp_path: Path) -> None:
    first, second = tmp_path / "a.png", tmp_path / "b.png"
    first.write_bytes(b"one")
    second.write_bytes(b"one")
    assert key(first_image_path=str(first)) == key(first_image_path=str(second))
    assert key(first_image_path=str(first)) != key()
    assert key(first_image_path=str(first)) != key(last_image_path=str(first))
    second.write_bytes(b"two")
    assert key(first_image_path=str(first)) != key(first_image_path=str(second))
    with pytest.raises(InvalidArgument, match="first_image_path"):
        key(first_image_path=str(tmp_path / "gone.png"))


@pytest.mark.parametrize(
    "shape", [lambda path: path, lambda path: [path], lambda path: {"a": [path]}]
)
@pytest.mark.parametrize("name", ["image_paths", "reference_image", "control"])
def test_a_file_counts_by_its_content_wherever_it_is_named(
    tmp_path: Path, name: str, shape: Callable[[str], Any]
) -> None:
    """Else the latent of another picture would be taken for this one's."""
    picture = tmp_path / "a.png"
    picture.write_bytes(b"one")
    before = key(**{name: shape(str(picture))})
    picture.write_bytes(b"two")
    assert key(**{name: shape(str(picture))}) != before


def test_an_adapter_of_the_pipeline_file_counts_by_its_size(tmp_path: Path) -> None:
    adapter = tmp_path / "lora.safetensors"
    adapter.write_bytes(b"1234")
    before = key({"loras": [{"file": str(adapter)}]})
    adapter.write_bytes(b"12345")
    assert key({"loras": [{"file": str(adapter)}]}) != before


@pytest.mark.parametrize("seed", [None, "drawn", 1.5, True])
def test_a_run_of_which_nobody_tells_the_seed_is_no_repeat_of_any(seed: Any) -> None:
    with pytest.raises(InvalidArgument, match="the seed is") as refused:
        RunKeys({**PPL, "seed": seed}).run(FIELDS, None)
    assert refused.value.field == "seed"
    assert RunKeys({**PPL, "seed": seed}).run(FIELDS, 5).seed == 5


def test_what_takes_the_place_of_a_field_is_a_setting_that_there_is() -> None:
    settings = {cls.service_name: cls.model_fields for cls in SETTINGS}
    told = re.findall(r"(\w+) of (\w+)", " ".join(MOVED.values()))
    named = [(setting, service) for setting, service in told if service in settings]
    assert len(named) > 25
    assert [(s, service) for s, service in named if s not in settings[service]] == []
    ours = re.findall(r"set by (skipstone_\w+)", " ".join(MOVED.values()))
    assert set(ours) <= {field.name for field in dataclasses.fields(CacheConfig)}


def test_the_files_of_the_model_count_by_name_and_size(tmp_path: Path) -> None:
    (tmp_path / "dit.safetensors").write_bytes(b"1234")
    before = key({"model_root": str(tmp_path)})
    (tmp_path / "dit.safetensors").write_bytes(b"12345")
    assert key({"model_root": str(tmp_path)}) != before


def test_a_request_with_steps_of_its_own_has_no_key() -> None:
    assert key(num_inference_steps=STEPS)
    with pytest.raises(InvalidArgument, match="num_inference_steps"):
        key(num_inference_steps=STEPS + 1)


def test_sigmas_follow_steps_and_shift() -> None:
    assert flow_sigmas(4, 1.0) == (1.0, 0.75, 0.5, 0.25, 0.0)
    shifted = flow_sigmas(50, 3.0)
    assert (shifted[0], shifted[-1]) == (1.0, 0.0)
    assert shifted[25] == pytest.approx(0.75)


def made(tmp_path: Path, **cache: Any) -> tuple[Any, Any]:
    file = write_pipeline_file(tmp_path, enable_latent_cache=True, **{**NOBODY, **cache})
    return CacheServiceFactory.create_cache_service(
        ppl_file=str(file), enable_latent_cache=None, cache_mode=None
    )


def ask(service: Any, adapter: Any, request: Any, engine_ctx: Any) -> tuple[Any, dict[str, Any]]:
    query = adapter.build_query(request)
    result = asyncio.run(service.lookup(query))
    return query, adapter.apply_resume(result, engine_ctx=engine_ctx)


@pytest.mark.parametrize("key_steps", [[5, 10, 15], [STEPS, STEPS + 5]])
def test_a_miss_asks_for_latents_of_steps_that_the_host_keeps(
    tmp_path: Path, key_steps: list[int]
) -> None:
    service, adapter = made(tmp_path, key_steps=key_steps)
    request = SimpleNamespace(task_id="1", task="t2v", prompt="a cat", seed=1)
    _, data = ask(service, adapter, request, dict(FIELDS))
    assert (data["hit"], data["skip_step"], data["cached_latent"]) == (False, 0, None)
    assert any(0 < step < STEPS for step in data["saved_steps"])
    assert all(type(step) is int for step in data["saved_steps"])
    service.shutdown()


@pytest.mark.parametrize(
    ("request_", "engine_ctx"),
    [
        (SimpleNamespace(), dict(FIELDS)),
        (SimpleNamespace(prompt=None, seed="x"), dict(FIELDS)),
        (SimpleNamespace(prompt="a cat", seed=-1), None),
        (SimpleNamespace(prompt="a cat", seed=1), {**FIELDS, "odd": object()}),
        (SimpleNamespace(prompt="a cat", seed=1), {**FIELDS, "first_image_path": "/gone"}),
        (SimpleNamespace(prompt="x" * 30_000, seed=1), dict(FIELDS)),
    ],
)
def test_whatever_the_host_gives_it_gets_a_miss_and_no_exception(
    tmp_path: Path, request_: Any, engine_ctx: Any
) -> None:
    service, adapter = made(tmp_path)
    query, data = ask(service, adapter, request_, engine_ctx)
    assert data["hit"] is False
    assert data["saved_steps"]
    for payload in (
        None,
        {},
        {"latent_states_dict": None},
        {"latent_states_dict": {"five": torch.ones(2), 5: None, "6": torch.ones(2)}},
        {"latent_states_dict": {5: torch.ones(2)}, "final_step": 3},
    ):
        outputs = adapter.on_response(request_, payload)
        assert isinstance(outputs, LatentOutputs)
        asyncio.run(service.save(query, outputs))
    asyncio.run(service.save(None, None))
    assert adapter.apply_resume(None, engine_ctx=engine_ctx)["hit"] is False
    service.shutdown()
    service.shutdown()


def test_a_run_of_another_length_than_the_key_says_is_not_saved(tmp_path: Path) -> None:
    service, adapter = made(tmp_path)
    request = SimpleNamespace(task_id="1", task="t2v", prompt="a cat", seed=1)
    query, _ = ask(service, adapter, request, dict(FIELDS))
    reuse = query.reuse
    payload = {"latent_states_dict": {5: torch.ones(2)}, "final_step": 7}
    asyncio.run(service.save(query, adapter.on_response(request, payload)))
    assert reuse.key_steps == ()
    service.shutdown()


def test_without_a_cache_nothing_is_connected_and_every_request_is_a_miss(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text("CACHE_CONFIG = {'enable_latent_cache': True}\n", encoding="utf-8")
    service, adapter = CacheServiceFactory.create_cache_service(
        ppl_file=str(file), enable_latent_cache=False, cache_mode=None
    )
    assert service._session is None
    request = SimpleNamespace(task_id="1", task="t2v", prompt="a cat", seed=1)
    query, data = ask(service, adapter, request, dict(FIELDS))
    assert data["saved_steps"]
    assert query.reuse is None
    service.shutdown()


def test_the_shim_is_a_package_of_its_own_with_just_the_module_that_the_host_imports(
    tmp_path: Path,
) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=SHIM,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        modules = {name for name in archive.namelist() if name.endswith(".py")}
        metadata = next(name for name in archive.namelist() if name.endswith("METADATA"))
        assert b"Requires-Dist: skipstone" in archive.read(metadata)
    assert modules == {
        "cacheseek/__init__.py",
        "cacheseek/adapters/__init__.py",
        "cacheseek/adapters/telefuser/__init__.py",
        "cacheseek/adapters/telefuser/cache_factory.py",
    }
    code = (
        "import sys\n"
        "from cacheseek.adapters.telefuser.cache_factory import CacheServiceFactory as theirs\n"
        "print('torch' in sys.modules, 'grpc' in sys.modules)\n"
        "from skipstone_client.adapters.telefuser.cache_factory import CacheServiceFactory\n"
        "print(theirs is CacheServiceFactory)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join([str(wheel), *sys.path])},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["False", "False", "True"]
