"""The command line, one file per command. A command parses its arguments, calls the library and prints. It imports torch only if needed."""
