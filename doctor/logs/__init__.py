"""Logs of engines: read as a stream, followed through the stages of a start, and explained."""
