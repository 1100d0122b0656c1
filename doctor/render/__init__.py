"""Pure functions of a Report that return text."""
