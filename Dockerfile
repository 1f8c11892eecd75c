# The page of `lastseen serve`, with a token: docs/integrations.md.
#
#   docker build -t lastseen .                        for CPUs
#   docker build -t lastseen:cuda --target cuda .     for NVIDIA cards
#   docker run --rm -p 127.0.0.1:8765:8765 -v "$PWD/videos:/videos:ro" -v lastseen-index:/index lastseen

FROM python:3.12-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY lastseen lastseen
COPY lastseen_synth lastseen_synth
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels

FROM python:3.12-slim AS cpu-libraries
COPY --from=wheel /wheels /wheels
RUN python -m venv /opt/lastseen \
    && /opt/lastseen/bin/pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu \
    && /opt/lastseen/bin/pip install --no-cache-dir "$(echo /wheels/*.whl)[web,openvino]"

# On Linux the torch of the usual package index brings CUDA's libraries; the driver is the host's.
FROM python:3.12-slim AS cuda-libraries
COPY --from=wheel /wheels /wheels
RUN python -m venv /opt/lastseen \
    && /opt/lastseen/bin/pip install --no-cache-dir "$(echo /wheels/*.whl)[web]"

FROM python:3.12-slim AS base
RUN useradd --uid 1000 --create-home lastseen \
    && install --directory --owner=lastseen --group=lastseen --mode=700 /index \
    && install --directory /videos
ENV PATH=/opt/lastseen/bin:$PATH PYTHONUNBUFFERED=1 LASTSEEN_INDEX=/index
VOLUME /index
EXPOSE 8765
# Without the token the answer is 401: the server is up.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s CMD ["python", "-c", "import http.client; server = http.client.HTTPConnection('127.0.0.1', 8765, timeout=5); server.request('GET', '/'); raise SystemExit(server.getresponse().status >= 500)"]
ENTRYPOINT ["lastseen"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8765", "--videos", "/videos"]

FROM base AS cuda
# Kernels for the card are compiled when they are first used.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=cuda-libraries /opt/lastseen /opt/lastseen
USER lastseen

FROM base AS cpu
COPY --from=cpu-libraries /opt/lastseen /opt/lastseen
USER lastseen
