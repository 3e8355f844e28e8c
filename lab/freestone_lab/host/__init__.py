"""What this machine and its programs are: files read, nothing measured."""
