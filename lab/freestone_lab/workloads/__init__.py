"""What is measured: suites, real programs and their inputs."""
