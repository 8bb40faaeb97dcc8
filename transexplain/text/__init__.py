"""Text that comes from outside: parsing, addresses, secrets and tracebacks."""
