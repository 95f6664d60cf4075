"""Latents as engines hold them, numpy arrays or torch tensors, and as they are stored.

torch is imported only when a tensor is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from skipstone_client._reuse_flows import LARGE_BYTES, Work
from skipstone_shared.latents import TensorSpec
from skipstone_shared.tensor_messages import Array, array_spec

LatentsT = TypeVar("LatentsT")
"""A numpy array (bfloat16 is that of ``ml_dtypes``) or a torch tensor."""


def work_on(latents: object, do: Callable[[], Any]) -> Work:
    """Work on latents that an engine has, in order with what it has queued on their device.

    Args:
        latents: Array or tensor in the layout of the loop.
        do: Reads them, or makes others on their device.
    """
    if isinstance(latents, np.ndarray):
        return Work(do, blocks=latents.nbytes >= LARGE_BYTES)
    from skipstone_client.torch_arrays import is_on_host, on_this_stream

    tensor = _as_any(latents)
    if is_on_host(tensor):
        return Work(do, blocks=tensor.numel() * tensor.element_size() >= LARGE_BYTES)
    # However small they are: what the device still has to do is waited for.
    return Work(on_this_stream(tensor.device, do), blocks=True)


def copied_array(latents: Any) -> Array:
    """A copy of latents in memory of its own, so that the loop may go on with the original.

    Raises:
        InvalidArgument: their element type cannot be stored.
    """
    if isinstance(latents, np.ndarray):
        array: Array = np.array(latents, order="C")
    else:
        from skipstone_client.torch_arrays import to_array

        array = to_array(latents)
    array_spec(array)
    return array


def spec_of(latents: Any) -> TensorSpec:
    """Element type and shape of latents.

    Raises:
        InvalidArgument: their element type cannot be stored.
    """
    if isinstance(latents, np.ndarray):
        return array_spec(latents)
    from skipstone_client.torch_arrays import dtype_of

    return TensorSpec(dtype_of(latents.dtype), tuple(latents.shape))


def in_form_of(array: Array, pattern: LatentsT) -> LatentsT:
    """Stored latents as an array or as a tensor on the device of the one given."""
    result: Any = array
    if not isinstance(pattern, np.ndarray):
        from skipstone_client.torch_arrays import to_tensor

        result = to_tensor(array, _as_any(pattern).device)
    form: LatentsT = result
    return form


def renoised(clean: Array, noise: LatentsT, sigma: float, *, flow: bool) -> LatentsT:
    """Clean latents with noise of one level, in the element type of the clean ones.

    Flow matching interpolates (Lipman et al., 2022, arXiv 2210.02747, equation 22); the others add
    noise to what stays as it is (Karras et al., 2022, arXiv 2206.00364, section 2).

    Args:
        clean: The donor's latents.
        noise: Standard normal noise of the request, same shape.
        sigma: Noise level: share of noise for flow matching, else noise over signal.
        flow: Whether the model is one of flow matching.
    """
    signal = 1.0 - sigma if flow else 1.0
    given, result = _as_any(noise), _as_any(clean)
    if isinstance(noise, np.ndarray):
        wide = np.float64 if clean.dtype == np.float64 else np.float32
        mixed = signal * result.astype(wide) + sigma * given.astype(wide)
        result = mixed.astype(clean.dtype)
    else:
        from skipstone_client.torch_arrays import renoised_tensor

        result = renoised_tensor(clean, given, signal, sigma)
    form: LatentsT = result
    return form


def _as_any(value: object) -> Any:
    """What is an array or a tensor, without naming torch's class."""
    return value
