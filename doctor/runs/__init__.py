"""Minimal runs of an engine: a guarded child process, what it did, and what follows from it."""
