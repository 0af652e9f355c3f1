#!/bin/sh
# make kind-demo: a kind cluster with three sites, the chart on it with images built here, and a first job, waited for.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
files=$root/manifests/kind
name=tranche
context=kind-$name
version=$(sed -n 's/^appVersion: *//p' "$root/helm/tranche/Chart.yaml")
gpu=tranche.dev~1pretend-gpu
timeout=${TIMEOUT:-300s}

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'kind-demo: %s\n' "$*" >&2; exit 1; }
need() { command -v "$1" >/dev/null 2>&1 || fail "$1 is not installed: $2"; }
kube() { kubectl --context "$context" "$@"; }

need docker "see https://docs.docker.com/engine/install/ (without Docker, try: make demo)"
need kind "see https://kind.sigs.k8s.io/docs/user/quick-start/#installation"
need kubectl "see https://kubernetes.io/docs/tasks/tools/"
need helm "see https://helm.sh/docs/intro/install/"
docker info >/dev/null 2>&1 || fail "Docker does not answer: start it, or see what \`docker info\` says"

say "building the images"
for target in scheduler operator; do
    docker build --target "$target" --tag "tranche-$target:$version" "$root"
done

if kind get clusters 2>/dev/null | grep -qx "$name"; then
    say "using the cluster $name that is there"
else
    say "making the cluster $name"
    kind create cluster --config "$files/cluster.yaml" --wait 120s
fi
kind load docker-image --name "$name" "tranche-scheduler:$version" "tranche-operator:$version"

say "giving each worker four pretended GPUs"
for node in $(kube get nodes --selector topology.kubernetes.io/zone --output name); do
    kube patch "$node" --subresource status --type json --patch "[
        {\"op\": \"add\", \"path\": \"/status/capacity/$gpu\", \"value\": \"4\"},
        {\"op\": \"add\", \"path\": \"/status/allocatable/$gpu\", \"value\": \"4\"}]"
done

say "installing the chart"
helm upgrade --install tranche "$root/helm/tranche" --kube-context "$context" --namespace tranche-system \
    --create-namespace --values "$files/values.yaml" --wait --timeout "$timeout"
kube wait --for condition=Established --timeout 60s crd/sites.tranche.dev crd/trainingjobs.tranche.dev
kube apply --filename "$files/sites.yaml"

say "a first job: eight chunks, more workers than one site has room for"
kube delete trainingjob kind-first --namespace default --ignore-not-found
kube apply --namespace default --filename "$files/job.yaml"
if ! kube wait --namespace default --for 'jsonpath={.status.phase}=Succeeded' --timeout "$timeout" trainingjob/kind-first; then
    kube describe trainingjob kind-first --namespace default >&2
    fail "the job did not succeed within $timeout; above is what it says of itself"
fi
kube get --namespace default trainingjobs,sites

say "done"
cat <<END
Look around:   kubectl --context $context get trainingjobs --output wide
               make setup && .venv/bin/kubectl-tranche history kind-first --context $context
The next job:  edit manifests/kind/job.yaml, give it another name, and kubectl --context $context apply -f it
Remove it all: kind delete cluster --name $name
END
