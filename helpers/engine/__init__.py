"""What the core stands on and a reader of the paper may take on trust: speed, lists of candidate edges, files."""
