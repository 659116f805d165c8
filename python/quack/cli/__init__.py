"""The `quack` command line: parse, call, print."""
