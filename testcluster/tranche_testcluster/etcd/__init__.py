"""etcd of a test cluster: requests to it, and the history that it holds."""
