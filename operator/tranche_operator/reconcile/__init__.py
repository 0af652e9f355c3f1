"""The pure reconcile function: from observed objects to actions."""
