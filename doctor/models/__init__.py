"""What a model's files say, as pure functions of what was read: where they lie, what they hold."""
