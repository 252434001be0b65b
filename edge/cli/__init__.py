"""The command `edge`. One file per subcommand, loaded when it is called; nothing here is imported by the rest of edge."""
