# Two images from one file:
#   docker build --target scheduler -t tranche-scheduler:0.1.0 .
#   docker build --target operator  -t tranche-operator:0.1.0 .
# Another registry: --build-arg PYTHON_IMAGE=mirror.example.com/python:3.13-slim
# The base image by digest, so that the same source gives the same image: --build-arg PYTHON_DIGEST=sha256:…
# (docs/how-to/installing.md has the command that prints it).
ARG PYTHON_IMAGE=python:3.13-slim
ARG PYTHON_DIGEST=""

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
# What changes seldom comes first: the layer of the dependencies is kept while only our own code changes.
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN python -m venv /build-env \
    && /build-env/bin/pip install --require-hashes -r requirements/build.txt \
    && python -m venv --without-pip /opt/tranche \
    && pip --python /opt/tranche/bin/python install --require-hashes --only-binary :all: -r requirements/runtime.txt
COPY . .
# Without build isolation nothing is downloaded here: the build tools are those pinned above.
RUN /build-env/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && pip --python /opt/tranche/bin/python install --no-deps --no-index /wheels/*.whl \
    && python -m compileall -q -j 0 /opt/tranche/lib

FROM ${PYTHON_IMAGE}${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS runtime
# Nothing is written outside /tmp, so the root file system may be read-only.
ENV PATH=/opt/tranche/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY --from=build /opt/tranche /opt/tranche
USER 65532:65532
WORKDIR /tmp
ARG VERSION=0.1.0
ARG REVISION=""
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"

FROM runtime AS scheduler
LABEL org.opencontainers.image.title="tranche-scheduler" \
      org.opencontainers.image.description="Planner and kube-scheduler extender of tranche"
EXPOSE 10263 10264
ENTRYPOINT ["tranche"]
CMD ["scheduler"]

FROM runtime AS operator
LABEL org.opencontainers.image.title="tranche-operator" \
      org.opencontainers.image.description="Operator of tranche: creates, evicts and resumes training pods"
EXPOSE 8081
ENTRYPOINT ["tranche-operator"]
