# By digest, so that a rebuild of a commit starts from the same bytes; Renovate proposes the next one (renovate.json).
ARG BASE=python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
WORKDIR /src
COPY requirements/bootstrap.txt requirements/tool.txt requirements/
# The test suites of numpy, pandas and scipy are 24 MB of the compressed image; nothing imports them.
RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip install --quiet --no-cache-dir --require-hashes -r requirements/bootstrap.txt \
    && /opt/build/bin/uv venv --quiet --python python3 /opt/venv \
    && /opt/build/bin/uv pip sync --quiet --no-cache --python /opt/venv --require-hashes requirements/tool.txt \
    && find /opt/venv/lib/python3.13/site-packages/numpy /opt/venv/lib/python3.13/site-packages/pandas \
       /opt/venv/lib/python3.13/site-packages/scipy -type d -name tests -prune -exec rm -rf {} +
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/build/bin/python -m hatchling build -t wheel -d /tmp/dist \
    && /opt/build/bin/uv pip install --quiet --no-cache --python /opt/venv --no-deps /tmp/dist/*.whl

FROM ${BASE}
# Debian keeps one version of git per release, so a pin would only break the build at the next security update.
# The standard library comes without bytecode, and a container that is started for one run compiles it every time.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/apt /var/log/dpkg.log \
    && git config --system --add safe.directory '*' \
    && python3 -m compileall -q -x '/(test|idlelib|tkinter|turtledemo|ensurepip|lib2to3|site-packages|dist-packages)/' \
       "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/venv /opt/venv
# Run by the runner after a cancel as well: what the container wrote is given to the checkout's owner.
RUN printf '#!/opt/venv/bin/python -Iu\nfrom agent_eval_action.sandbox.ownership import main\n\nmain()\n' \
      > /usr/local/bin/agent-eval-restore-ownership \
    && chmod 755 /usr/local/bin/agent-eval-restore-ownership
# Where the runner puts the checkout whatever is said here; this is for `docker run` by hand.
WORKDIR /github/workspace
LABEL org.opencontainers.image.title="agent-eval-action" \
      org.opencontainers.image.description="Decides whether a change made an ADK agent worse" \
      org.opencontainers.image.licenses="Apache-2.0"
# The job's whole environment reaches this process: -I keeps a PYTHONPATH meant for the runner's Python out.
# The path is absolute because the working directory is the checkout under test.
ENTRYPOINT ["/opt/venv/bin/python", "-I", "-u", "/opt/venv/bin/agent-eval"]
