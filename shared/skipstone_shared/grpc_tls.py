"""Certificates as gRPC takes them, on a server and on a client."""

from __future__ import annotations

import grpc

from skipstone_shared.tls_files import TlsFiles, TlsMaterial, reloaded_tls


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials of a server, sync or aio, that takes changed files with the next connection.

    With `ca_file` a client must show a certificate of these authorities. Connections that stand are
    not asked again.

    Raises:
        InvalidArgument: As `read_tls`.
    """
    material = reloaded_tls(files)
    used = material.get()

    def configuration() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        found = material.get()
        if found is used:
            return None  # gRPC's word for "as before"
        used = found
        return _server_configuration(found)

    return grpc.dynamic_ssl_server_credentials(
        _server_configuration(used),
        configuration,  # type: ignore[arg-type]  # the stubs do not know that it may give None
        require_client_authentication=files.ca_file is not None,
    )


def channel_credentials(material: TlsMaterial) -> grpc.ChannelCredentials:
    """Credentials of a client's channel."""
    return grpc.ssl_channel_credentials(material.ca, material.key, material.cert)


def _server_configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    assert material.key is not None
    assert material.cert is not None
    return grpc.ssl_server_certificate_configuration([(material.key, material.cert)], material.ca)
