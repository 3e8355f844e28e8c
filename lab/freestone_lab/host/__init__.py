"""What this machine and its programs are. Reads files and measures nothing."""
