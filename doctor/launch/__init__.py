"""Readers: a command line, a script or a manifest -> Launch, with file and line of each part."""
