# The daemon in a container.
#
#   docker build -t sidecar .
#   docker run -i --rm -e OPENAI_API_KEY -v sidecar:/data -v "$PWD:/work" --no-healthcheck sidecar serve --stdio
#   docker run -d -e OPENAI_API_KEY -v sidecar:/data -v "$PWD:/work" -v ./token:/run/secrets/sidecar-token:ro \
#       -p 127.0.0.1:7332:7332 sidecar
#
# The first is a child of its host; the second a service, whose clients show the token in /run/secrets/sidecar-token.
# The daemon is the user 10001: of what is mounted it must be able to read the token and to write the folder of work.

FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md ./
COPY protocol protocol
COPY record_store record_store
COPY sidecar sidecar
RUN pip install --no-cache-dir --prefix=/install .

FROM python:3.12-slim
# bash and git are what the daemon's own tools expect of a workplace.
RUN apt-get update \
    && apt-get install -y --no-install-recommends bash git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 sidecar \
    && install -d -o sidecar -g sidecar -m 700 /data /run/sidecar \
    && install -d -o sidecar -g sidecar /work
COPY --from=build /install /usr/local
ENV SIDECAR_HOME=/data \
    PYTHONDONTWRITEBYTECODE=1
USER sidecar
WORKDIR /work
VOLUME ["/data"]
EXPOSE 7332

# Over a socket inside the container, so that no token is needed. `serve --stdio` has no use for it: --no-healthcheck.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 CMD ["python", "-c", "\
import socket;\
s = socket.socket(socket.AF_UNIX);\
s.settimeout(4);\
s.connect('/run/sidecar/health');\
s.sendall(b'{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"system.ping\", \"params\": {}}\\n');\
assert b'\"ok\":true' in s.makefile('rb').readline()"]

ENTRYPOINT ["sidecar"]
CMD ["serve", "--tcp", "0.0.0.0:7332", "--allow-remote", "--token-file", "/run/secrets/sidecar-token", \
     "--socket", "/run/sidecar/health"]
