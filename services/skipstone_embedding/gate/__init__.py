"""The bundled gate: whether two prompts ask for the same picture, by rules that can be read.

`words` splits a prompt, `tagging` says what each word does, `parsing` what belongs to what,
`comparison` finds every difference between two prompts (`edits` and `rewrites` those of prompts of
like length and of unlike, `word_order` what the order says), and `scorer` turns the findings into a
score. `lexicon` knows synonyms, kinds and opposites.
"""
