"""Which copy of a shared library a process would load; imported only when somebody asks."""
