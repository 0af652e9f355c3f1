"""The operator's watches: Kopf handlers and pod informers."""
