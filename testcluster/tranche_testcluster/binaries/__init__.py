"""The programs that the test cluster runs: built from pinned Go modules, or unpacked from a Debian package."""
