"""Default namespace, chosen as kubectl does."""

from pathlib import Path

from kubernetes import config

from tranche.kube.client.credentials import chosen_file, reading, uses_service_account

_OWN = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def present_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """Return the namespace of the context, else that of the pod, else ``default``.

    Args:
        kubeconfig: Kubeconfig file; default: as `tranche.kube.client.credentials.Credentials.load` finds it.
        context: Context of that file; default: its current context.
    """
    try:
        if uses_service_account(kubeconfig, context):
            return _OWN.read_text(encoding="utf-8").strip() or "default"
        file = chosen_file(kubeconfig)
        with reading(file):
            contexts, current = config.list_kube_config_contexts(config_file=file)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError, ValueError):
        return "default"  # the connection reports the error
    chosen = current if context is None else next((entry for entry in contexts if entry["name"] == context), {})
    return str(chosen.get("context", {}).get("namespace") or "default")
