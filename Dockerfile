# Three images from one file:
#   docker build --target scheduler -t tranche-scheduler:0.1.0 .
#   docker build --target operator  -t tranche-operator:0.1.0 .
#   docker build --target worker    -t tranche-worker:0.1.0 .     (only for the example numpy_ps)
# Without Docker: `make images`, which uses buildah.
# Another registry: --build-arg PYTHON_IMAGE=mirror.example.com/python:3.13-slim
# The base image by digest, so that the same source gives the same image: --build-arg PYTHON_DIGEST=sha256:…
# (docs/how-to/installing.md has the command that prints it).
ARG PYTHON_IMAGE=python:3.13-slim
ARG PYTHON_DIGEST=""

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1
# A mirror of PyPI: --build-arg PIP_INDEX_URL=https://pypi.example.com/simple
ARG PIP_INDEX_URL=""
WORKDIR /src
# What changes seldom comes first: the layer of the dependencies is kept while only our own code changes.
COPY requirements/build.txt requirements/runtime.txt requirements/
# The secret is a file of certificate authorities, for networks whose proxy has one of its own:
#   --secret id=authorities,src=/etc/ssl/certs/ca-certificates.crt
RUN --mount=type=secret,id=authorities \
    if [ -e /run/secrets/authorities ]; then export PIP_CERT=/run/secrets/authorities; fi \
    && if [ -z "${PIP_INDEX_URL}" ]; then unset PIP_INDEX_URL; fi \
    && python -m venv /build-env \
    && /build-env/bin/pip install --require-hashes -r requirements/build.txt \
    && python -m venv --without-pip /opt/tranche \
    && /build-env/bin/pip --python /opt/tranche/bin/python install --require-hashes --only-binary :all: -r requirements/runtime.txt
COPY . .
# Without build isolation nothing is downloaded here: the build tools are those pinned above. Half of the packages is
# code that is never imported, and is removed: the asynchronous client and the generated classes of the package
# kubernetes, besides the three that kopf imports, and the tests of numpy.
RUN /build-env/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /build-env/bin/pip --python /opt/tranche/bin/python install --no-deps --no-index /wheels/*.whl \
    && find /opt/tranche/lib -type d \( -path '*/kubernetes/aio' -o -path '*/numpy/*' -name tests \) -prune -exec rm -r {} + \
    && find /opt/tranche/lib \( -path '*/kubernetes/client/api/*' -o -path '*/kubernetes/client/models/*' \) -name '*.py' \
        ! -name __init__.py ! -name v1_object_meta.py ! -name v1_owner_reference.py ! -name v1_managed_fields_entry.py -delete \
    && python -m compileall -q -j 0 /opt/tranche/lib \
    && cp -a /opt/tranche /opt/operator && rm -r /opt/operator/lib/python3.*/site-packages/numpy* \
    && python -m venv --without-pip /opt/worker \
    && cp -a /opt/tranche/lib/python3.*/site-packages/numpy* worker/tranche_worker worker/examples/numpy_ps \
        /opt/worker/lib/python3.*/site-packages/ \
    && python -m compileall -q -j 0 /opt/worker/lib

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS runtime
# Nothing is written outside /tmp, so the root file system may be read-only.
ENV PATH=/opt/tranche/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /tmp
ARG VERSION=0.1.0
ARG REVISION=""
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"

FROM runtime AS worker
ENV PATH=/opt/worker/bin:$PATH
LABEL org.opencontainers.image.title="tranche-worker" \
      org.opencontainers.image.description="Example of training with tranche_worker: a parameter server and workers in numpy"
COPY --from=build /opt/worker /opt/worker

FROM runtime AS scheduler
LABEL org.opencontainers.image.title="tranche-scheduler" \
      org.opencontainers.image.description="Planner and kube-scheduler extender of tranche"
COPY --from=build /opt/tranche /opt/tranche
EXPOSE 10263 10264
ENTRYPOINT ["tranche"]
CMD ["scheduler"]

FROM runtime AS operator
LABEL org.opencontainers.image.title="tranche-operator" \
      org.opencontainers.image.description="Operator of tranche: creates, evicts and resumes training pods"
# The packages of the scheduler without numpy, which only policies and simulator use.
COPY --from=build /opt/operator /opt/tranche
EXPOSE 8081
ENTRYPOINT ["tranche-operator"]
