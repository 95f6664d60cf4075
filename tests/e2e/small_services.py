"""Six small services in place of the real ones: real processes with the real server shell.

They hold nothing, so they start fast.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

FULL_NAMES = {
    "embedding": "skipstone.embedding.v1.Embedding",
    "vector_index": "skipstone.vector_index.v1.VectorIndex",
    "latent_kv": "skipstone.latent_kv.v1.LatentKV",
    "denoise": "skipstone.denoise.v1.Denoise",
    "orchestrator": "skipstone.orchestrator.v1.Orchestrator",
}
SERVICE = """
    import os, sys
    from pathlib import Path
    from skipstone_shared.config import ServiceSettings, load_settings
    from skipstone_shared.grpc_server import Mounted, serve

    class Settings(ServiceSettings):
        service_name = "{name}"
        data_dir: Path = Path("nowhere")
        fail: str = ""
        embedding_target: str = ""
        vector_index_target: str = ""
        latent_kv_target: str = ""
        denoise_target: str = ""

    settings = load_settings(Settings)

    def build():
        if settings.fail:
            raise ValueError(settings.fail)
        print("plain words from {name}")
        return Mounted(lambda server: None, ["{full_name}"])

    if __name__ == "__main__":
        sys.exit(serve(settings, build))
"""

GATEWAY = """
    import json, signal, sys
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from skipstone_shared.config import CallerSettings, load_settings

    class Settings(CallerSettings):
        service_name = "gateway"
        orchestrator_target: str = ""
        latent_kv_target: str = ""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    if __name__ == "__main__":
        settings = load_settings(Settings)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        server = ThreadingHTTPServer(("127.0.0.1", settings.port), Handler)
        address = "127.0.0.1:%d" % server.server_port
        print(json.dumps({"event": "serving", "address": address}), flush=True)
        server.serve_forever()
"""


def small_services_environ(root: Path) -> dict[str, str]:
    """Writes the services and gives an environment in which `python -m skipstone_<name>` is one."""
    for name, full_name in FULL_NAMES.items():
        code = textwrap.dedent(SERVICE).format(name=name, full_name=full_name)
        (root / f"skipstone_{name}.py").write_text(code)
    (root / "skipstone_gateway.py").write_text(textwrap.dedent(GATEWAY))
    paths = [str(root), *(path for path in sys.path if path)]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SKIPSTONE_")}
    return kept | {"PYTHONPATH": os.pathsep.join(paths)}
