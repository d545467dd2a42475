# By digest, so that a rebuild of a commit starts from the same bytes; Renovate proposes the next one (renovate.json).
ARG BASE=python:3.13-slim-trixie@sha256:9d2e5553305c7c7b0097999bb17187c69b921ccd6bc9d40e4bb5ebe652c00285

# Layers stand in the order in which releases change them: Debian's packages, what the lock names, our wheel. The same
# packages make the same layer, whenever they are installed, so that whoever has the last release pulls the wheel alone:
# everything has one date, bytecode holds its source's hash, and is compiled in the same portions, without random order.
FROM ${BASE} AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never PYTHONHASHSEED=0 \
    SOURCE_DATE_EPOCH=315532800 COMPILE="/opt/venv/bin/python -m compileall -qq -l --invalidation-mode unchecked-hash"
WORKDIR /src
COPY requirements/bootstrap.txt requirements/tool.txt requirements/
# The test suites of numpy, pandas and scipy are 24 MB of the compressed image; nothing imports them.
RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip install --quiet --no-cache-dir --require-hashes -r requirements/bootstrap.txt \
    && /opt/build/bin/uv venv --quiet --python python3 /opt/venv \
    && /opt/build/bin/uv pip sync --quiet --no-cache --python /opt/venv --require-hashes requirements/tool.txt \
    && find /opt/venv/lib/python3.13/site-packages/numpy /opt/venv/lib/python3.13/site-packages/pandas \
       /opt/venv/lib/python3.13/site-packages/scipy -type d -name tests -prune -exec rm -rf {} + \
    && find /opt/venv/lib -type d -print0 | sort -z | xargs -0 -P "$(nproc)" -n 25 $COMPILE \
    && find /opt/venv -exec touch --no-dereference --date=@$SOURCE_DATE_EPOCH {} +
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/build/bin/python -m hatchling build -t wheel -d /tmp/dist \
    && /opt/build/bin/uv pip install --quiet --no-cache --python /opt/venv --prefix /opt/tool --no-deps \
       --no-index --find-links /tmp/dist agent-eval-action \
    && find /opt/tool '(' -name uv_cache.json -o -name .lock ')' -delete && sed -i '/uv_cache.json/d' /opt/tool/lib/*/site-packages/*/RECORD \
    && find /opt/tool/lib -type d -print0 | sort -z | xargs -0 -n 25 $COMPILE \
    && find /opt/tool -exec touch --no-dereference --date=@$SOURCE_DATE_EPOCH {} +

FROM ${BASE}
# Debian keeps one version of git per release, so a pin would only break the build at the next security update.
# The standard library comes without bytecode, and a container that is started for one run compiles it every time.
# The command is run by the runner after a cancel as well: what the container wrote is given to the checkout's owner.
# hadolint ignore=DL3008,DL3009
RUN touch /tmp/.before \
    && apt-get update \
    && apt-get install -y --no-install-recommends git \
    && find /var/lib/apt/lists /var/cache /var/log -type f ! -name lock -cnewer /tmp/.before -delete \
    && git config --system --add safe.directory '*' \
    && PYTHONHASHSEED=0 python3 -m compileall -q --invalidation-mode unchecked-hash \
       -x '/(test|idlelib|tkinter|turtledemo|ensurepip|lib2to3|site-packages|dist-packages)/' \
       "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
    && printf '#!/opt/venv/bin/python -Iu\nfrom agent_eval_action.sandbox.container_init import restore_after_cancel\n\nrestore_after_cancel()\n' \
       > /usr/local/bin/agent-eval-restore-ownership \
    && chmod 755 /usr/local/bin/agent-eval-restore-ownership \
    && mkdir -p /opt/venv /github/workspace \
    && find /etc /github /opt /usr /var -xdev -cnewer /tmp/.before ! -path '/etc/host*' ! -path /etc/resolv.conf -exec touch --no-dereference --date=@315532800 {} + \
    && rm /tmp/.before && touch --date=@315532800 /tmp
COPY --from=build /opt/venv /opt/venv
# Where the runner puts the checkout whatever is said here; this is for `docker run` by hand.
WORKDIR /github/workspace
COPY --from=build /opt/tool /opt/venv
LABEL org.opencontainers.image.title="agent-eval-action" \
      org.opencontainers.image.description="Decides whether a change made an ADK agent worse" \
      org.opencontainers.image.licenses="Apache-2.0"
# The job's whole environment reaches this process: -I keeps a PYTHONPATH meant for the runner's Python out.
# The path is absolute because the working directory is the checkout under test.
ENTRYPOINT ["/opt/venv/bin/python", "-I", "-u", "/opt/venv/bin/agent-eval"]
