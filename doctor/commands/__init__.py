"""One module a command; each exports the click command of its own name. Only they print."""
