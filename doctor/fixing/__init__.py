"""From findings to changes that can be taken back: plan, preview, journal, apply, undo."""
