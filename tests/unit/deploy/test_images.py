"""The images hold one service each, are pinned, and are those that the chart installs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from images.source_digest import source_digest
from tests.unit.deploy.rendered import COMPONENTS, REPOSITORY, release, workloads

from skipstone_shared.ports import DEFAULT_PORTS

DOCKERFILE = REPOSITORY / "deploy" / "images" / "Dockerfile"
TEXT = DOCKERFILE.read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def stage(name: str) -> str:
    """The lines of a stage."""
    found = re.search(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1]


def test_the_dockerfile_passes_its_linter() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    told = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (0, "")


@pytest.mark.parametrize("component", COMPONENTS.values())
def test_an_image_has_its_own_service_and_extra(component: str) -> None:
    build = stage(f"{component}-build")
    assert re.findall(r"whl\)\[(.+)\]\"", build) == [f"{component}${{EXTRAS:+,$EXTRAS}}"]
    (more,) = re.findall(r"^ARG EXTRAS=(.*)$", build, re.MULTILINE)
    assert set(more.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert component in PROJECT["optional-dependencies"]
    program = f"skipstone-{component}"
    assert program in PROJECT["scripts"]
    final = stage(component)
    assert f'ENTRYPOINT ["{program}"]' in final
    assert f"COPY --from={component}-build " in final
    port = DEFAULT_PORTS[component.replace("-", "_")]
    (exposed,) = re.findall(r"^EXPOSE (.*)$", final, re.MULTILINE)
    workload = next(w for w in workloads(release("defaults")) if COMPONENTS[w.key] == component)
    assert exposed.split() == [str(port), str(workload.ports["metrics"])]


def test_the_stores_images_have_the_clients_of_every_backend() -> None:
    """Another backend is a setting of the chart, and must not need another image."""
    for component in ("latent-kv", "vector-index"):
        (more,) = re.findall(r"^ARG EXTRAS=(.*)$", stage(f"{component}-build"), re.MULTILINE)
        extras = {e for e in PROJECT["optional-dependencies"] if e.startswith(f"{component}-")}
        assert extras <= set(more.split(","))


def test_images_run_as_the_user_of_the_pods() -> None:
    users = re.findall(r"^USER (.*)$", TEXT, re.MULTILINE)
    for workload in workloads(release("defaults")):
        context = workload.pod["spec"]["securityContext"]
        assert users == [f"{context['runAsUser']}:{context['runAsGroup']}"]
        image = workload.container["image"].rpartition("/")[2]
        assert image == f"{COMPONENTS[workload.key]}:{PROJECT['version']}"
        assert workload.command[0] == f"skipstone-{COMPONENTS[workload.key]}"


def test_stores_and_the_orchestrator_are_built_before_anything_with_torch() -> None:
    """Builders that do not skip stages stop at the target: it must come before the large ones."""
    without, _, with_torch = TEXT.partition("FROM build AS embedding-build")
    assert "torch" not in without.replace("without torch", "")
    assert "torch" in with_torch


@pytest.mark.parametrize("name", ["latent_kv", "vector_index", "orchestrator", "gateway"])
def test_a_service_without_a_model_imports_no_torch(name: str) -> None:
    code = f"import skipstone_{name}.__main__, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_the_images_copy_is_in_the_build_context() -> None:
    ignore = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*)$", TEXT, re.MULTILINE)
        for word in line.split()[:-1]
    }
    assert copied == kept


def test_the_digest_of_the_sources_changes_with_what_the_images_hold(tmp_path: Path) -> None:
    files = {
        ".dockerignore": "*\n!services\n!README.md\n**/__pycache__\n**/*.py[cod]\n",
        "deploy/images/Dockerfile": "FROM scratch",
        "services/a.py": "a = 1",
        "README.md": "# A",
    }

    def digest(**changed: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in {**files, **changed}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return source_digest(folder)

    same = {
        digest(),
        digest(**{"services/__pycache__/a.cpython-311.pyc": "compiled"}),
        digest(**{"tests/test_a.py": "not copied"}),
    }
    other = {
        digest(**{"services/a.py": "a = 2"}),
        digest(**{"services/b.py": "b = 1"}),
        digest(**{"README.md": "# B"}),
        digest(**{"deploy/images/Dockerfile": "FROM debian"}),
    }
    assert len(same) == 1
    assert len(other) == 4
    assert not same & other


def test_every_image_says_of_which_sources_it_is() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert "--build-arg SOURCE_DIGEST=" in makefile
    assert 'LABEL dev.skipstone.source="${SOURCE_DIGEST}"' in stage("runtime")
    for component in COMPONENTS.values():
        assert f"FROM runtime AS {component}\n" in TEXT
