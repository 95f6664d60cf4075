"""Devices of torch.

Apart from the encoder, so that a missing one is told before transformers is imported, which takes
seconds.
"""

from __future__ import annotations

import torch

from skipstone_shared.errors import FailedPrecondition


def find_device(name: str) -> torch.device:
    """Returns a device that works.

    Raises:
        FailedPrecondition: There is no such device here.
    """
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise FailedPrecondition(f"device {name} cannot be used: {reason}") from error
    return device
