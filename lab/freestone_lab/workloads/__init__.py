"""What the lab measures: suites, real programs and their inputs."""
