"""Plans of the executor, kept: what a run would be does not depend on its prompt or seed."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict

from skipstone_orchestrator.backends import Denoiser
from skipstone_orchestrator.guard import Guard
from skipstone_orchestrator.journal import BUILD_QUERY
from skipstone_shared.denoise_runs import DenoiseCapabilities, GenerationPlan
from skipstone_shared.errors import DeadlineExceeded, InvalidArgument, Unavailable
from skipstone_shared.generation import MAX_PROMPT_BYTES, MAX_SEED, GenerationParams
from skipstone_shared.tracing import traced


class Planner:
    """Checks parameters and plans runs.

    A plan is kept until the executor says that it is another instance; a run that is refused
    because its plan is out of date must call `forget`.
    """

    def __init__(
        self, denoiser: Denoiser, guard: Guard, *, timeout_s: float, capacity: int
    ) -> None:
        """Creates a planner without plans.

        Args:
            denoiser: The executor.
            guard: Its guard.
            timeout_s: Seconds a plan may take.
            capacity: Plans kept.
        """
        self._denoiser = denoiser
        self._guard = guard
        self._timeout_s = timeout_s
        self._capacity = capacity
        self._instance_id = ""
        self._plans: OrderedDict[tuple[str, GenerationParams], GenerationPlan] = OrderedDict()

    @traced(BUILD_QUERY)
    async def plan(self, namespace: str, params: GenerationParams) -> GenerationPlan:
        """The plan of a run; its `params` carry the caller's prompt and seed.

        Raises:
            InvalidArgument: A parameter is out of range.
            Unavailable: No executor can be reached, or it did not answer in time.
        """
        check_params(params)
        key = (namespace, dataclasses.replace(params, prompt="", seed=None))
        plan = self._plans.get(key)
        if plan is None:
            plan = await self._ask(namespace, params)
            self._note_instance(plan.instance_id)
            if not params.reference_inputs:  # megabytes that rarely come twice
                self._keep(key, plan)
        else:
            self._plans.move_to_end(key)
        filled = dataclasses.replace(plan.params, prompt=params.prompt, seed=params.seed)
        return dataclasses.replace(plan, params=filled)

    async def _ask(self, namespace: str, params: GenerationParams) -> GenerationPlan:
        try:
            return await self._guard.call(
                lambda: self._denoiser.plan(params, namespace), self._timeout_s
            )
        except DeadlineExceeded as error:
            # The deadline was not the caller's: to them no executor answers.
            raise Unavailable(error.message).came_from("denoise") from None

    async def ask_executor(self) -> DenoiseCapabilities:
        """The executor's capabilities; plans of an earlier instance are dropped."""
        found = await self._denoiser.get_capabilities()
        self._note_instance(found.instance_id)
        return found

    def _note_instance(self, instance_id: str) -> None:
        if instance_id != self._instance_id:
            self.forget()
            self._instance_id = instance_id

    def forget(self) -> None:
        """Drops all plans."""
        self._plans.clear()

    def _keep(self, key: tuple[str, GenerationParams], plan: GenerationPlan) -> None:
        self._plans[key] = plan
        if len(self._plans) > self._capacity:
            self._plans.popitem(last=False)


def check_params(params: GenerationParams) -> None:
    """Checks prompt and seed, which no plan covers; the executor checks all the rest.

    Raises:
        InvalidArgument: One of them is out of range.
    """
    check_prompt(params.prompt, "params.prompt")
    if params.seed is not None:
        check_seed(params.seed, "params.seed")


def check_seed(seed: int, field: str) -> None:
    """Checks a seed.

    Raises:
        InvalidArgument: It is out of range.
    """
    if not 0 <= seed <= MAX_SEED:
        raise InvalidArgument(f"{field} is {seed}", field=field, allowed=f"0 to {MAX_SEED}")


def check_prompt(prompt: str, field: str) -> None:
    """Checks a prompt.

    Raises:
        InvalidArgument: It is empty, only white space, or too long.
    """
    size = len(prompt.encode("utf-8", "surrogatepass"))
    problem = "is empty" if not size else "is only white space" if not prompt.strip() else ""
    if size > MAX_PROMPT_BYTES:
        problem = f"has {size} bytes"
    if problem:
        raise InvalidArgument(
            f"{field} {problem}",
            field=field,
            allowed=f"1 to {MAX_PROMPT_BYTES} bytes that are not all white space",
        )
