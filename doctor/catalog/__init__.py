"""Tables with their source and date. Rules stand in checks, words in their docstrings."""
