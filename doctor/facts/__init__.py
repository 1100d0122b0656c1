"""Typed facts and the probes that make them out of what a host answers.

A fact that could only be read in part says so in a field `gaps`: the engine then never lets a check
that used it pass. Fields with `metadata={"report": False}` are bulky or change from second to
second and stay out of the report's `facts`.
"""
