"""The rule language: text → checked program (see the page on the rule language in the docs). Does not use numpy or torch."""
