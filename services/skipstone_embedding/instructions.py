"""How an instruction and a text become what a model reads."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class InstructionTemplate:
    """Text around an instruction and a text.

    Attributes:
        template: ``{instruction}`` and ``{text}`` in it are replaced; used when an instruction is
            given. Empty for models that take none.
        default_instruction: Instruction of calls that give none.
    """

    template: str = ""
    default_instruction: str = ""

    def apply(self, text: str, instruction: str = "") -> str:
        """Returns what the model reads."""
        instruction = instruction or self.default_instruction
        if not self.template or not instruction:
            return text
        # Split first: a text that holds a placeholder is not filled in.
        parts = self.template.split("{text}")
        return text.join(part.replace("{instruction}", instruction) for part in parts)
