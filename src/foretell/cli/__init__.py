"""The command line: one file per command. Commands parse, call the library and print; torch is imported only where it is needed."""
