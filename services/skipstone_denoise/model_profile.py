"""What is known about a loaded model: defaults, limits, and how its pipeline is called."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from skipstone_denoise.model_families import DEFAULT_FRAME_RATE, RATE_PARAMETERS
from skipstone_shared.generation import (
    BlockCacheConfig,
    GenerationParams,
    ReferenceRole,
    VideoFormat,
)
from skipstone_shared.latents import DType, GuidanceMode


@dataclasses.dataclass(frozen=True, slots=True)
class ModelProfile:
    """A loaded model; sizes in pixels.

    Attributes:
        call_parameters: Names the pipeline's `__call__` takes.
        default_steps: Denoising steps when none are given.
        max_steps: Largest number of steps.
        default_guidance_scale: Guidance scale when none is given; 0 when the pipeline takes none.
        default_height: Height when none is given.
        default_width: Width when none is given.
        size_multiple: Height and width are multiples of it.
        min_size: Smallest height and width.
        max_size: Largest height and width.
        second_guidance: Call parameter of `guidance_scale_2`; empty when the pipeline has none.
        default_second_guidance: Its default, None when it follows `guidance_scale`.
        default_num_frames: Frames when none are given; 1 for picture models.
        max_num_frames: Largest number of frames; 1 for picture models.
        frame_step: Frames are one more than a multiple of it.
        reference_parameters: Call parameter of each kind of reference input.
        required_references: Kinds that must be given.
        shift_key: Scheduler setting that `shift` sets; empty when it has none.
        adapters: Names of the adapters that are loaded.
        starts_from_noise: Whether the pipeline begins at step 0 (image-to-image ones do not).
        remembers_steps: Whether guidance depends on steps before (a guider with momentum).
        guided_mode: How the pipeline evaluates guidance when it does.
        loop_dtype: Element type of the latents that leave a step.
        default_block_cache: Block caching when a request says nothing of it.
        default_negative_prompt: What to avoid when a request says nothing of it.
        frame_rate: Frames per second of its videos.
        default_video_format: What a video is sent as when a request says nothing of it.
    """

    call_parameters: frozenset[str]
    default_steps: int
    max_steps: int
    default_guidance_scale: float
    default_height: int
    default_width: int
    size_multiple: int
    min_size: int
    max_size: int
    second_guidance: str = ""
    default_second_guidance: float | None = None
    default_num_frames: int = 1
    max_num_frames: int = 1
    frame_step: int = 1
    reference_parameters: Mapping[ReferenceRole, str] = dataclasses.field(default_factory=dict)
    required_references: frozenset[ReferenceRole] = frozenset()
    shift_key: str = ""
    adapters: tuple[str, ...] = ()
    starts_from_noise: bool = True
    remembers_steps: bool = False
    guided_mode: GuidanceMode = GuidanceMode.NONE
    loop_dtype: DType = DType.FLOAT32
    default_block_cache: BlockCacheConfig | None = None
    default_negative_prompt: str = ""
    frame_rate: float = DEFAULT_FRAME_RATE
    default_video_format: VideoFormat = VideoFormat.MP4

    @property
    def is_video(self) -> bool:
        """Whether the pipeline makes videos."""
        return "num_frames" in self.call_parameters

    @property
    def takes_frame_rate(self) -> bool:
        """Whether the pipeline's latents depend on the frame rate."""
        return not self.call_parameters.isdisjoint(RATE_PARAMETERS)

    @property
    def takes_negative_prompt(self) -> bool:
        """Whether the pipeline takes a negative prompt."""
        return "negative_prompt" in self.call_parameters

    @property
    def takes_guidance_scale(self) -> bool:
        """Whether the pipeline takes a guidance scale."""
        return "guidance_scale" in self.call_parameters

    @property
    def has_true_guidance(self) -> bool:
        """Whether guidance needs a second scale and a negative prompt.

        So do pipelines whose `guidance_scale` is an input of a distilled model.
        """
        return self.second_guidance == "true_cfg_scale"

    def guidance_mode(self, params: GenerationParams, guided: bool | None) -> GuidanceMode:
        """How a run evaluates guidance.

        Args:
            params: Its parameters with defaults filled in.
            guided: What the pipeline itself says of it; None when it says nothing.
        """
        if self.has_true_guidance:
            guided = (params.guidance_scale_2 or 0.0) > 1.0 and bool(params.negative_prompt)
        elif not self.takes_guidance_scale:
            guided = True  # by settings of its own, as when the mode was looked at
        elif guided is None:
            guided = (params.guidance_scale or 0.0) > 1.0
        return self.guided_mode if guided else GuidanceMode.NONE
