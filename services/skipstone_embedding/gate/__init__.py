"""The bundled gate: whether two prompts ask for the same picture, by rules that can be read.

`words` splits a prompt, `tagging` says what each word does, `parsing` what belongs to what,
`comparison` finds every difference between two prompts, and `scorer` turns the findings into a
score. `lexicon` knows synonyms, kinds and opposites. What the rules do not know they refuse.
"""
