"""Which namespace is meant when none is named: as kubectl decides it."""

from pathlib import Path

from kubernetes import config

from tranche.kube.client.credentials import chosen_file, uses_service_account

_OWN = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def present_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace of the context, else the pod's own, else ``default``.

    Args:
        kubeconfig: File; default: as `tranche.kube.client.credentials.Credentials.load` finds it.
        context: Of that file; default: its current one.
    """
    try:
        if uses_service_account(kubeconfig, context):
            return _OWN.read_text(encoding="utf-8").strip() or "default"
        contexts, current = config.list_kube_config_contexts(config_file=chosen_file(kubeconfig))  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError, ValueError):
        return "default"  # whoever connects is told what is wrong
    chosen = current if context is None else next((one for one in contexts if one["name"] == context), {})
    return str(chosen.get("context", {}).get("namespace") or "default")
