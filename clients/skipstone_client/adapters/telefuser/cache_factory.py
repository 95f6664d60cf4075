"""What TeleFuser imports: makes its latent cache from a pipeline file."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from skipstone_client.adapters.telefuser.cache_config import CacheConfig, read_cache_config
from skipstone_client.adapters.telefuser.pipeline_file import read_pipeline_file
from skipstone_client.adapters.telefuser.run_key import RunKeys
from skipstone_shared.errors import InvalidArgument

if TYPE_CHECKING:
    from skipstone_client.adapters.telefuser.adapter import TeleFuserAdapter
    from skipstone_client.adapters.telefuser.cache_service import TeleFuserCacheService
    from skipstone_client.reuse_session import ReuseSession

_log = logging.getLogger(__name__)


class CacheServiceFactory:
    """Makes the pair that the host works with."""

    @staticmethod
    def create_cache_service(
        ppl_file: str | None = None,
        enable_latent_cache: bool | None = None,
        cache_mode: str | None = None,
    ) -> tuple[TeleFuserCacheService, TeleFuserAdapter]:
        """Makes service and adapter, without connecting: a service that is down is no reason.

        Args:
            ppl_file: The pipeline file, with ``PPL_CONFIG`` and perhaps ``CACHE_CONFIG``.
            enable_latent_cache: From the command line, over ``CACHE_CONFIG``; None: not given.
            cache_mode: The same.

        Raises:
            InvalidArgument: what is configured cannot be used. It ends the host's start.
        """
        file = read_pipeline_file(ppl_file)
        config, warnings = read_cache_config(
            file.cache_config, enable_latent_cache, cache_mode, os.environ
        )
        # Not before it is known what is wanted: these load gRPC.
        from skipstone_client.adapters.telefuser.adapter import TeleFuserAdapter
        from skipstone_client.adapters.telefuser.cache_service import TeleFuserCacheService

        if not config.enable_latent_cache:
            return TeleFuserCacheService(None), TeleFuserAdapter(config)
        if file.ppl_config is None:
            raise InvalidArgument(
                f"{ppl_file} has no PPL_CONFIG, which says what its latents depend on",
                field="PPL_CONFIG",
            )
        for warning in warnings:
            _log.warning("%s", warning)
        keys, session = RunKeys(file.ppl_config), _session(config)
        return TeleFuserCacheService(session), TeleFuserAdapter(config, keys, session)


def _session(config: CacheConfig) -> ReuseSession:
    from skipstone_client.reuse_session import ReuseSession
    from skipstone_client.session_limits import SessionLimits

    limits = SessionLimits(
        lookup_timeout_s=config.skipstone_lookup_timeout_s,
        retry_pause_s=config.skipstone_retry_pause_s,
        read_timeout_s=config.skipstone_read_timeout_s,
        # Of a run all snapshots, the clean latent and the save come at once.
        queue_size=config.save_queue_size * (len(config.key_steps) + 2),
        close_timeout_s=config.skipstone_shutdown_timeout_s if config.flush_on_shutdown else 0.0,
    )
    return ReuseSession(
        config.skipstone_orchestrator_target,
        config.skipstone_latent_kv_target,
        namespace=config.skipstone_namespace,
        limits=limits,
        credentials=config.credentials,
    )
