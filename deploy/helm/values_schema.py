"""Writes the chart's schema: what is written by hand, and the settings of the programs.

    python -m helm.values_schema           # with deploy/ on the path; `make chart` does it
    python -m helm.values_schema --check   # exits with 1 when the file is not up to date

A values file with a misspelt or impossible setting is thus refused by `helm install`, not by a pod
that starts again and again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from skipstone_denoise.config import DenoiseSettings
from skipstone_embedding.config import EmbeddingSettings
from skipstone_gateway.config import GatewaySettings
from skipstone_latent_kv.config import LatentKVSettings
from skipstone_orchestrator.config import OrchestratorSettings
from skipstone_shared.config import ServiceSettings
from skipstone_vector_index.config import VectorIndexSettings

_HERE = Path(__file__).parent
BASE = _HERE / "values.schema.base.json"
SCHEMA = _HERE / "skipstone" / "values.schema.json"

SETTINGS: dict[str, type[ServiceSettings]] = {
    "orchestrator": OrchestratorSettings,
    "embedding": EmbeddingSettings,
    "vectorIndex": VectorIndexSettings,
    "latentKv": LatentKVSettings,
    "denoise": DenoiseSettings,
    "gateway": GatewaySettings,
}
"""Section of the values file to the settings of its service."""

_OF_ALL = {
    "access_file",
    "client_tls_ca_file",
    "client_tls_cert_file",
    "client_tls_key_file",
    "client_tls_server_name",
    "client_token_file",
    "data_dir",
    "device",
    "drain_grace_s",
    "health_port",
    "host",
    "max_connection_age_s",
    "metrics_port",
    "port",
    "tls_ca_file",
    "tls_cert_file",
    "tls_key_file",
}
_OF_CALLERS = {
    "orchestrator_target",
    "embedding_target",
    "vector_index_target",
    "latent_kv_target",
    "denoise_target",
}
_OF_GRPC = {
    "access_file",
    "client_token_file",
    "health_port",
    "max_connection_age_s",
    "tls_ca_file",
}


def set_by_the_chart(key: str) -> set[str]:
    """Settings of a section that other values decide, so that the two cannot disagree."""
    more = {"model"} if key == "denoise" else set()
    return ((_OF_ALL | _OF_CALLERS | more) & SETTINGS[key].model_fields.keys()) - never_set(key)


def never_set(key: str) -> set[str]:
    """Settings that a pod never has.

    The gateway refuses them or does nothing with them, but for two: neither browsers nor the probes
    of a kubelet have a certificate that a `tls_ca_file` would ask for, and a token of its own
    would be that of every caller without one.
    """
    return _OF_GRPC if key == "gateway" else set()


def settings_schema(key: str) -> dict[str, Any]:
    """The schema of the `settings` of a section, without what the chart sets.

    Secrets are left out too: a values file is no place for them, `extraEnv` refers to one.
    """
    schema = _fields_schema(SETTINGS[key], f"#/$defs/{key}Settings/$defs/")
    hidden = set_by_the_chart(key) | never_set(key)
    schema["properties"] = {
        name: told for name, told in schema["properties"].items() if name not in hidden
    }
    return schema


def common_schema() -> dict[str, Any]:
    """The schema of `common.settings`: what every service has."""
    schema = _fields_schema(ServiceSettings, "#/$defs/commonSettings/$defs/")
    schema["properties"] = {
        name: told for name, told in schema["properties"].items() if name not in _OF_ALL
    }
    return schema


def whole_schema() -> dict[str, Any]:
    """The schema of the values file."""
    schema: dict[str, Any] = json.loads(BASE.read_text(encoding="utf-8"))
    schema["$defs"]["commonSettings"] = common_schema()
    for key in SETTINGS:
        schema["$defs"][f"{key}Settings"] = settings_schema(key)
    return schema


def main(argv: list[str]) -> int:
    """Writes the file, or compares it; returns the exit code."""
    text = json.dumps(whole_schema(), indent=2, ensure_ascii=False) + "\n"
    if argv == ["--check"]:
        if SCHEMA.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(f"{SCHEMA} is not up to date: run `make chart`\n")
        return 1
    SCHEMA.write_text(text, encoding="utf-8")
    return 0


def _fields_schema(cls: type[ServiceSettings], definitions: str) -> dict[str, Any]:
    found = cls.model_json_schema(ref_template=definitions + "{model}")
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: _rules(told) for name, told in found["properties"].items() if not _is_secret(told)
        },
    }
    if "$defs" in found:
        schema["$defs"] = _rules(found["$defs"])
    return schema


def _is_secret(told: dict[str, Any]) -> bool:
    options = [told, *told.get("anyOf", ())]
    return any(option.get("writeOnly") for option in options)


def _rules(told: Any) -> Any:
    """What is allowed, without titles and texts: `--help` has those, and they change often.

    Nor defaults, which would go stale in a release that is kept.
    """
    if isinstance(told, dict):
        return {
            key: _rules(value)
            for key, value in told.items()
            if key not in ("title", "description", "default") or isinstance(value, dict)
        }
    if isinstance(told, list):
        return [_rules(value) for value in told]
    return told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
