"""Makes the bundled gate: a lexicon from WordNet, pairs from grammars, a scorer from both."""
