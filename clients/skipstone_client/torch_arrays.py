"""torch tensors <-> numpy arrays, bfloat16 included, without changing a bit.

Imported only where tensors are: the client installs and runs without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

from skipstone_shared.latents import DType

Array = npt.NDArray[Any]
T = TypeVar("T")


def to_array(tensor: torch.Tensor) -> Array:
    """A copy of a tensor in memory of its own, so that the loop may go on with the original."""
    on_host = tensor.detach().to("cpu", copy=True).contiguous()
    if on_host.dtype is torch.bfloat16:
        return np.asarray(on_host.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(on_host.numpy())


def to_tensor(array: Array, device: torch.device) -> torch.Tensor:
    """A tensor with a copy of an array's elements on a device."""
    contiguous = np.ascontiguousarray(array).reshape(array.shape)
    if contiguous.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(contiguous.view(np.int16).copy()).view(torch.bfloat16).to(device)
    return torch.from_numpy(contiguous.copy()).to(device)


def dtype_of(dtype: torch.dtype) -> DType:
    """The element type under its name in messages."""
    return DType(str(dtype).removeprefix("torch."))


def renoised_tensor(clean: Array, noise: torch.Tensor, signal: float, sigma: float) -> torch.Tensor:
    """``signal * clean + sigma * noise`` on the device of the noise, in the clean element type."""
    latents = to_tensor(clean, noise.device)
    wide = torch.float64 if latents.dtype is torch.float64 else torch.float32
    return (signal * latents.to(wide) + sigma * noise.to(wide)).to(latents.dtype)


def cpu_tensor(array: Array) -> torch.Tensor:
    """A tensor on the CPU with a copy of an array's elements."""
    return to_tensor(array, torch.device("cpu"))


def is_on_host(tensor: torch.Tensor) -> bool:
    """Whether its elements are in the memory of the CPU."""
    return tensor.device.type == "cpu"


def on_this_stream(device: torch.device, do: Callable[[], T]) -> Callable[[], T]:
    """The same work for another thread, in order with what this thread has queued on a device.

    Every thread has a current stream of its own: another one would read what is not computed yet.
    """
    module: Any = getattr(torch, device.type, None)
    if not hasattr(module, "current_stream") or not hasattr(module, "stream"):
        return do  # such as Metal, which has one stream for all threads
    stream = module.current_stream(device)

    def ordered() -> T:
        with module.stream(stream):
            return do()

    return ordered
