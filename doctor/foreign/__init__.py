"""Files that people already have -> facts: outputs of nvidia-smi and of the collect_env scripts.

Pure functions of text. A reader gives a fact only when the file surely holds all of it; what the
file names without telling it is a `Missing` with the reason, what it tells in part has `gaps`. A
text that a reader cannot use raises Unreadable with the words that complete "FILE: ...".
"""
