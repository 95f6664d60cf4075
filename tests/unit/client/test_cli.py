"""The command line against a scripted orchestrator."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import subprocess
import sys
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest
import structlog
from google.rpc import status_pb2
from rich.console import Console
from tests.unit.client.fake_services import FakeLatentKV, FakeOrchestrator, serving
from typer.testing import CliRunner

from skipstone.generation.v1 import generation_pb2
from skipstone.orchestrator.v1 import orchestrator_pb2
from skipstone_client.artifact_names import next_free
from skipstone_client.cli_commands import build_app
from skipstone_client.cli_output import bytes_text, seconds_text, share_text
from skipstone_client.cli_up import JsonView, LogView, _service_flags
from skipstone_client.local_cluster import LogLine, ServiceDied, ServiceReady
from skipstone_shared.errors import EntryNotFound, InvalidArgument, QueueFull
from skipstone_shared.generation import (
    Artifact,
    BlockCacheReport,
    BranchReport,
    GenerationParams,
    StepProgress,
)
from skipstone_shared.latents import DType, LatentRef, TensorSpec
from skipstone_shared.orchestration import (
    BreakerState,
    CacheMode,
    Entry,
    EntryPage,
    Fallback,
    GenerateAccepted,
    GenerateFinished,
    GenerateStarted,
    HitTier,
    OrchestratorStats,
    Provenance,
    ReuseKind,
    ServiceState,
)
from skipstone_shared.orchestration_answer_messages import (
    entry_page_to_message,
    entry_to_message,
    orchestrator_stats_to_message,
)
from skipstone_shared.orchestration_messages import event_to_messages

PNG = b"\x89PNG" + bytes(2000)
PROVENANCE = Provenance(
    request_id="request-7",
    tier=HitTier.APPROXIMATE,
    reason="DONOR_RESUMED",
    executed_steps=18,
    num_inference_steps=30,
    seed=7,
    cache_mode=CacheMode.READ_WRITE,
    policy_version="3",
    skip_steps=12,
    donor_entry_id="entry-1",
    donor_prompt="a red [bold]circle[/bold]",
    similarity=0.93,
    start_sigma=0.62,
    reuse_kind=ReuseKind.RENOISE,
    stage_times_s={"lookup": 0.004, "total": 1.25},
    fallbacks=(Fallback("save", "vector_index", "UNAVAILABLE", "it is down", 0.012),),
    saved_entry_id="entry-2",
)
EVENTS = (
    GenerateAccepted("request-7", GenerationParams("a", seed=7)),
    GenerateStarted(HitTier.APPROXIMATE, 12, 30),
    StepProgress(12, 30),
    Artifact("image/png", PNG, 64, 64),
    GenerateFinished(PROVENANCE),
)
ENTRY = Entry(
    "entry-1",
    "a red [bold]circle[/bold]",
    7,
    "k" * 32,
    (LatentRef("", "entry-1", 30, "", TensorSpec(DType.FLOAT16, (1, 4, 8, 8)), 255, 2048, 0.0),),
    create_time=1_700_000_000.0,
)


@pytest.fixture(autouse=True)
def _silent_server():
    """The server runs in this process and would log into what the command prints."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


def raising(error):
    def answer(request, context):
        raise error

    return answer


def generation(request, context):
    return (message for event in EVENTS for message in event_to_messages(event))


@contextmanager
def orchestrator(**answers):
    servicer = FakeOrchestrator(**answers)
    with serving(servicer) as target:

        def run(*words):
            environ = {"SKIPSTONE_TARGET": target, "COLUMNS": "200"}
            return CliRunner().invoke(build_app(), words, env=environ)

        yield run, servicer


def test_generate_writes_the_picture_and_says_where_it_comes_from(tmp_path):
    out = tmp_path / "picture.png"
    with orchestrator(Generate=generation) as (run, servicer):
        result = run("generate", "a red circle", "--out", str(out), "--steps", "30", "--seed", "7")
    assert result.exit_code == 0
    assert out.read_bytes() == PNG
    for fact in (
        "approximate (DONOR_RESUMED)",
        "18 of 30 run, 12 skipped (40 %), from sigma 0.620 by renoise",
        'entry-1 "a red [bold]circle[/bold]"',
        "0.930",
        "lookup 4 ms, total 1.2 s",
        "entry-2",
        "save: vector_index UNAVAILABLE - it is down (+12 ms)",
    ):
        assert fact in result.stdout
    params = servicer.requests[0].params
    assert (params.prompt, params.num_inference_steps, params.seed) == ("a red circle", 30, 7)


def test_a_picture_without_a_name_leaves_earlier_ones_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("picture.png").write_bytes(b"mine")
    with orchestrator(Generate=generation) as (run, _):
        told = [run("generate", "a").stdout for _ in range(2)]
    assert ["picture-2.png" in told[0], "picture-3.png" in told[1]] == [True, True]
    assert Path("picture.png").read_bytes() == b"mine"
    assert Path("picture-2.png").read_bytes() == Path("picture-3.png").read_bytes() == PNG


def test_a_clip_without_a_name_is_no_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [next_free("video/mp4"), next_free("image/gif")] == [
        Path("video.mp4"),
        Path("picture.gif"),
    ]
    Path("video.mp4").touch()
    assert next_free("video/mp4") == Path("video-2.mp4")


@pytest.mark.parametrize("option", ["--cache-mode", "--reuse-kind"])
def test_a_word_that_is_no_choice_is_told_with_the_choices(option):
    with orchestrator(Generate=generation) as (run, servicer):
        result = run("generate", "a", option, "foo")
    assert result.exit_code == 2
    assert "Value error" not in result.stderr
    assert "'foo' is none of " in result.stderr
    assert not servicer.requests


def test_another_service_at_the_target_is_told_as_such():
    with serving(FakeLatentKV()) as target:
        result = CliRunner().invoke(build_app(), ["stats", "--target", target])
    assert result.exit_code == 1
    assert f"orchestrator at {target}: what listens there is no orchestrator" in result.stderr


def test_generate_sends_only_what_was_given(tmp_path):
    """What is not given is the configuration's business, and 0 is not the same as not given."""
    words = ["generate", "a", "--out", str(tmp_path / "p.png")]
    with orchestrator(Generate=generation) as (run, servicer):
        run(*words)
        run(*words, "--guidance", "0", "--max-skip-steps", "0", "--cache-mode", "off")
    bare, given = servicer.requests
    assert not bare.params.HasField("seed")
    assert not bare.params.HasField("guidance_scale")
    assert not bare.params.HasField("block_cache")
    assert bare.cache.mode == orchestrator_pb2.CACHE_MODE_UNSPECIFIED
    assert not bare.cache.HasField("max_skip_steps")
    assert given.params.guidance_scale == 0
    assert given.cache.HasField("max_skip_steps")
    assert given.cache.mode == orchestrator_pb2.CACHE_MODE_OFF


def test_every_parameter_of_a_request_is_an_option(tmp_path):
    """But for those that a batch or a namespace are told by."""
    pictures = {}
    for name, data in (("image", b"1"), ("mask", b"22"), ("last", b"333")):
        pictures[name] = tmp_path / f"{name}.bin"
        pictures[name].write_bytes(b"\x89PNG\r\n\x1a\n" + data)
    words = "--negative-prompt b --steps 9 --guidance 3 --guidance-2 4 --height 64 --width 32 "
    words += "--num-frames 5 --video-format gif --seed 7 --shift 2.5 "
    words += "--adapter style=0.5 --adapter line "
    words += "--cache-config balanced --cache-mode read_only --no-exact --approximate "
    words += "--min-similarity 0.5 --max-skip-steps 4 --key-steps 2,4 --top-k 3 "
    words += "--reuse-kind renoise --reproducible --donor-choices 2 --donor-margin 0.1"
    files = ["--image", str(pictures["image"]), "--mask", str(pictures["mask"])]
    files += ["--last-frame", str(pictures["last"])]
    out = ["--out", str(tmp_path / "p.png")]
    with orchestrator(Generate=generation) as (run, servicer):
        assert run("generate", "a", *words.split(), *files, *out).exit_code == 0
    (request,) = servicer.requests
    for message in (request.params, request.cache):
        missing = {field.name for field in message.DESCRIPTOR.fields} - {
            field.name for field, _ in message.ListFields()
        }
        assert not missing
    sent = [(r.role, r.media_type, len(r.data)) for r in request.params.reference_inputs]
    assert sent == [(1, "image/png", 9), (2, "image/png", 10), (3, "image/png", 11)]
    assert [(a.name, a.scale) for a in request.params.adapters] == [("style", 0.5), ("line", 1)]
    assert request.params.guidance_scale_2 == 4
    assert not request.cache.allow_exact
    assert list(request.cache.key_steps) == [2, 4]


@pytest.mark.parametrize("command", ["generate", "explain"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--image", "none.png"), "--image: cannot read none.png"),
        (("--mask", __file__), "(allowed: PNG, JPEG or MP4)"),
        (("--adapter", "style=x"), "--adapter: 'style=x' is no adapter (allowed: NAME or"),
        (("--key-steps", "5;7"), "--key-steps: '5;7' are no steps (allowed: whole numbers"),
    ],
)
def test_a_bad_option_is_one_line_with_its_name_and_what_is_allowed(command, words, said):
    with orchestrator(Generate=generation) as (run, servicer):
        result = run(command, "a", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not servicer.requests


@pytest.mark.parametrize("option", ["--cache-config", "--block-cache"])
def test_cache_configs_of_other_projects_are_sent_as_block_cache(option, tmp_path):
    """As JSON, from a file, and as a preset; the JSON's names are cache-dit's."""
    text = '{"Fn_compute_blocks": 2, "residual_diff_threshold": 0.12, "enable_taylorseer": true}'
    path = tmp_path / "cache.json"
    path.write_text(text)
    words = ["generate", "a", "--out", str(tmp_path / "p.png"), option]
    with orchestrator(Generate=generation) as (run, servicer):
        for given in (text, f"@{path}", "balanced"):
            assert run(*words, given).exit_code == 0
    inline, read, preset = (request.params.block_cache for request in servicer.requests)
    assert (inline.fn_compute_blocks, inline.residual_diff_threshold) == (2, 0.12)
    assert inline.enable_taylorseer
    assert not inline.HasField("max_warmup_steps")
    assert inline == read
    assert preset == generation_pb2.BlockCacheConfig(
        preset=generation_pb2.BLOCK_CACHE_PRESET_BALANCED
    )


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("blanced", "none, quality, balanced, fast"),
        ('{"Fn_compute_block": 1}', "Fn_compute_blocks"),
        ('{"Fn_compute_blocks": "x"}', "Fn_compute_blocks"),
        ("{", "not JSON"),
        ("@/nowhere.json", "cannot read /nowhere.json"),
    ],
)
def test_a_cache_config_that_is_none_is_told_before_anything_is_sent(given, named, tmp_path):
    words = ["generate", "a", "--out", str(tmp_path / "p.png"), "--cache-config", given]
    with orchestrator(Generate=generation) as (run, servicer):
        result = run(*words)
    assert result.exit_code == 2
    assert named in result.stderr
    assert result.stderr.count("\n") == 1
    assert not servicer.requests


def cached_generation(request, context):
    branches = (
        BranchReport(
            "transformer",
            "cond",
            (12, 13),
            (14,),
            {"warm-up": 1, "difference below threshold": 2},
            (math.nan, 0.5, 0.0625),
        ),
        BranchReport("transformer", "uncond", (12, 13, 14), (), {"warm-up": 3}),
    )
    report = BlockCacheReport(branches, 36, 48, ("transformer never reuses a block: why not",))
    provenance = dataclasses.replace(PROVENANCE, block_cache=report)
    events = (*EVENTS[:-1], GenerateFinished(provenance))
    return (message for event in events for message in event_to_messages(event))


def test_generate_says_what_block_caching_did_in_every_branch(tmp_path):
    words = ["generate", "a", "--out", str(tmp_path / "p.png")]
    with orchestrator(Generate=cached_generation) as (run, _):
        lines = [" ".join(line.split()) for line in run(*words).stdout.splitlines()]
        document = json.loads(run(*words, "--json").stdout)
    reasons = "difference below threshold 2, warm-up 1"
    for line in (
        "block cache 36 of 48 block calls run, 25 % saved",
        f"transformer cond 2 steps computed, 1 reused ({reasons})",
        "transformer cond differences - 0.5000 0.0625",
        "transformer uncond 3 steps computed, 0 reused (warm-up 3)",
        "note 1 transformer never reuses a block: why not",
    ):
        assert line in lines
    told = document["provenance"]["block_cache"]["branches"][0]
    assert (told["reused_steps"], told["residual_diffs"]) == ([14], [None, 0.5, 0.0625])


def test_generate_as_json_is_one_object_with_the_provenance(tmp_path):
    out = tmp_path / "p.png"
    with orchestrator(Generate=generation) as (run, _):
        result = run("generate", "a", "--out", str(out), "--json")
    document = json.loads(result.stdout)
    assert document["out"] == str(out)
    assert document["artifact"]["data"] == {"size_bytes": len(PNG)}
    assert document["provenance"]["tier"] == "approximate"
    assert document["provenance"]["fallbacks"][0]["reason"] == "UNAVAILABLE"


def test_bad_input_is_one_line_that_names_the_field_and_exit_code_2(tmp_path):
    error = InvalidArgument("100000 steps", field="params.num_inference_steps", allowed="1 to 1000")
    with orchestrator(Generate=raising(error)) as (run, _):
        result = run("generate", "a", "--out", str(tmp_path / "p.png"), "--steps", "100000")
    assert result.exit_code == 2
    assert result.stderr == (
        "skipstone: params.num_inference_steps: 100000 steps (allowed: 1 to 1000)\n"
    )
    assert not (tmp_path / "p.png").exists()


def test_any_other_error_is_one_line_and_exit_code_1(tmp_path):
    with orchestrator(Generate=raising(QueueFull("16 wait\nalready"))) as (run, _):
        result = run("generate", "a", "--out", str(tmp_path / "p.png"))
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "16 wait already" in result.stderr


@pytest.mark.parametrize("out", ["missing/p.png", ".", "p" * 300 + ".png"])
def test_a_file_that_cannot_be_written_is_told_before_the_picture_is_made(out, tmp_path):
    with orchestrator(Generate=generation) as (run, servicer):
        result = run("generate", "a", "--out", str(tmp_path / out))
    assert result.exit_code == 2
    assert result.stderr.startswith("skipstone: --out: ")
    assert servicer.requests == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--steps", "99999999999"], "num_inference_steps"),
        (["--seed", "99999999999999999999"], "seed"),
        (["--max-skip-steps", "99999999999"], "max_skip_steps"),
        (["--negative-prompt", "a \udcff"], "negative_prompt"),
        (["--namespace", "n\udcff"], "namespace is not valid Unicode"),
        (["--timeout", "inf"], "--timeout"),
    ],
)
def test_what_cannot_even_be_sent_is_bad_input_not_a_traceback(words, named, tmp_path):
    with orchestrator(Generate=generation) as (run, servicer):
        result = run("generate", "a", "--out", str(tmp_path / "p.png"), *words)
    assert result.exit_code == 2
    assert named in result.stderr
    assert isinstance(result.exception, SystemExit)
    assert not servicer.requests


def test_an_orchestrator_that_is_not_there_is_told_with_what_to_do():
    result = CliRunner().invoke(build_app(), ["stats", "--target", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr
    assert "skipstone up" in result.stderr


def test_a_store_that_is_not_there_is_told_with_what_to_do(tmp_path):
    words = ["kv", "export", str(tmp_path / "new"), "--target", "127.0.0.1:1"]
    result = CliRunner().invoke(build_app(), words)
    assert result.exit_code == 1
    assert "latent_kv at 127.0.0.1:1" in result.stderr
    assert "skipstone up" in result.stderr


def test_the_target_flag_wins_over_the_environment():
    with orchestrator() as (run, _):
        result = run("stats", "--target", "127.0.0.1:1")
    assert "127.0.0.1:1:" in result.stderr


def stats_answer(request, context):
    return orchestrator_stats_to_message(
        OrchestratorStats(
            {HitTier.EXACT: 1, HitTier.MISS: 3},
            executed_steps=75,
            skipped_steps=25,
            saved_count=3,
            fallbacks={"lookup/UNAVAILABLE": 2},
            services=(ServiceState("embedding", "host:1", BreakerState.OPEN, "refused"),),
            latent_bytes=3 << 20,
        )
    )


def test_stats_tell_what_was_served_saved_and_what_is_down():
    with orchestrator(GetStats=stats_answer) as (run, servicer):
        text = run("stats", "--namespace", "ns").stdout
        document = json.loads(run("stats", "--json").stdout)
    assert servicer.requests[0].namespace == "ns"
    for fact in (
        "4: 1 exact, 0 approximate, 3 miss",
        "25 skipped (25 % of 100)",
        "unknown",
        "3.0 MiB",
        "lookup/UNAVAILABLE 2",
        "open",
        "refused",
    ):
        assert fact in text
    assert document["tiers"] == {"exact": 1, "miss": 3}
    assert document["services"][0]["breaker"] == "open"


def test_entries_are_listed_over_pages_up_to_the_limit():
    def answer(request, context):
        start = int(request.page_token or 0)
        end = min(start + request.page_size, 700)
        entries = tuple(Entry(f"entry-{i}", "p", i, "k") for i in range(start, end))
        return entry_page_to_message(EntryPage(entries, str(end) if end < 700 else ""))

    with orchestrator(ListEntries=answer) as (run, _):
        some = json.loads(run("entries", "list", "--limit", "600", "--json").stdout)
        every = json.loads(run("entries", "list", "--limit", "900", "--json").stdout)
        text = run("entries", "list", "--limit", "2").stdout
    assert [e["entry_id"] for e in some["entries"]] == [f"entry-{i}" for i in range(600)]
    assert some["has_more"]
    assert len(every["entries"]) == 700
    assert not every["has_more"]
    assert "entry-1" in text
    assert "more than 2" in text


def test_an_entry_is_shown_with_its_snapshots():
    answer = orchestrator_pb2.GetEntryResponse(entry=entry_to_message(ENTRY))
    with orchestrator(GetEntry=lambda request, context: answer) as (run, _):
        result = run("entries", "show", "entry-1")
    for fact in ("a red [bold]circle[/bold]", "1x4x8x8", "float16", "2.0 KiB", f"{255:016x}"):
        assert fact in result.stdout


def test_an_entry_that_is_not_there_is_exit_code_1():
    with orchestrator(GetEntry=raising(EntryNotFound("no entry 'x'"))) as (run, _):
        result = run("entries", "show", "x")
    assert (result.exit_code, result.stderr) == (1, "skipstone: no entry 'x'\n")


def test_deleting_tells_what_was_there():
    answer = orchestrator_pb2.DeleteEntriesResponse(
        statuses=[status_pb2.Status()] * 2, existed=[True, False]
    )
    with orchestrator(DeleteEntries=lambda request, context: answer) as (run, servicer):
        result = run("entries", "delete", "a", "b")
    assert result.stdout == "a deleted\nb was not there\n"
    assert list(servicer.requests[0].entry_ids) == ["a", "b"]


def test_settings_of_a_service_become_its_flags():
    flags = _service_flags(["latent_kv.quota_bytes=5", "vector_index.fsync=false"], "error")
    assert flags["latent_kv"] == ["--log-level", "info", "--quota-bytes=5"]
    assert flags["vector_index"][-1] == "--no-fsync"
    assert flags["denoise"] == ["--log-level", "info"]


@pytest.mark.parametrize("setting", ["quota_bytes=5", "latent_kv.quota_bytes", "nobody.x=1"])
def test_a_setting_that_names_no_service_field_and_value_is_refused(setting):
    result = CliRunner().invoke(build_app(), ["up", "--set", setting])
    assert result.exit_code == 2
    assert "SERVICE.FIELD=VALUE" in result.stderr
    assert "latent_kv" in result.stderr


def test_up_with_a_configuration_file_that_is_not_there_is_exit_code_2(tmp_path):
    result = CliRunner().invoke(build_app(), ["up", "--config", str(tmp_path / "no.toml")])
    assert result.exit_code == 2
    assert "cannot read configuration file" in result.stderr


def shown(events, log_level="info") -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    view = LogView(console, log_level)
    for event in events:
        view.show(event)
    return console.export_text()


def line(**fields) -> LogLine:
    return LogLine("latent_kv", json.dumps(fields), fields)


class Pipe(io.StringIO):
    """Tells what was written in one piece, and what has left."""

    def __init__(self):
        super().__init__()
        self.written = []
        self.sent = []

    def write(self, text):
        self.written.append(text)

    def flush(self):
        self.sent = list(self.written)


def test_lines_for_programs_are_written_whole_and_at_once():
    """They come from several threads, and a reader waits for the one that says ready."""
    pipe = Pipe()
    with redirect_stdout(pipe):
        JsonView().show(line(service="latent_kv", event="serving"))
    assert pipe.sent == ['{"service": "latent_kv", "event": "serving"}\n']


def test_log_lines_are_shown_for_people_with_their_service():
    text = shown(
        [
            line(
                timestamp="2026-11-29T17:22:08.1Z",
                level="info",
                event="rpc",
                service="latent_kv",
                rpc="/skipstone.latent_kv.v1.LatentKV/WriteLatent",
                request_id="0123456789abcdef",
                code="OK",
                duration_ms=12.3,
            ),
            LogLine("denoise", "plain [words]", None),
            ServiceReady("embedding", "127.0.0.1:1", 2.5),
            ServiceDied("embedding", "killed by SIGKILL", 0.5),
        ]
    ).splitlines()
    assert text[0].rstrip() == (
        "latent_kv    | 17:22:08 WriteLatent OK in 12 ms request_id=01234567"
    )
    assert text[1].rstrip() == "denoise      | plain [words]"
    assert "ready at 127.0.0.1:1 after 2.5 s" in text[2]
    assert "died (killed by SIGKILL) and starts again in 0.5 s" in text[3]


def test_lines_below_the_level_that_was_asked_for_are_not_shown():
    lines = [line(level="info", event="fine"), line(level="error", event="broken")]
    assert "fine" not in shown(lines, "warning")
    assert "broken" in shown(lines, "warning")


def test_probes_that_went_well_do_not_flood_the_view():
    rpc = "/skipstone.latent_kv.v1.LatentKV/GetCapabilities"
    probe = line(level="info", event="rpc", rpc=rpc, code="OK", duration_ms=0.1)
    failed = line(level="info", event="rpc", rpc=rpc, code="UNAVAILABLE", duration_ms=0.1)
    assert shown([probe]) == ""
    assert "GetCapabilities UNAVAILABLE" in shown([failed])
    assert "GetCapabilities OK" in shown([probe], "debug")


def test_a_traceback_is_shown_under_its_line():
    text = shown([line(level="error", event="unhandled", exception="Traceback\n  boom")])
    assert "  boom" in text


def test_numbers_are_written_for_people():
    assert [bytes_text(n) for n in (0, 1023, 1536, 5 << 30, -1)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "unknown",
    ]
    assert [seconds_text(s) for s in (0.0042, 0.85, 12.34)] == ["4 ms", "850 ms", "12.3 s"]
    assert [share_text(*pair) for pair in ((0, 0), (1, 3))] == ["0 %", "33 %"]


def test_the_version_is_told():
    result = CliRunner().invoke(build_app(), ["--version"])
    assert result.stdout.startswith("skipstone 0.")


@pytest.mark.parametrize("package", ["typer", "rich", "grpc_health"])
def test_a_missing_package_of_the_command_line_is_told_in_one_sentence(package):
    code = (
        f"import sys; sys.modules[{package!r}] = None; "
        "from skipstone_client.cli import app; sys.argv = ['skipstone', '--version']; app()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'skipstone[cli]'" in done.stderr
