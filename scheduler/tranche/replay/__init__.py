"""Shadow mode, and replays of recorded histories under other policies."""
