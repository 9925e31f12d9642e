# Vitrina as an image: the GraphiQL page, then the binary that embeds it, then a small runtime.
# Needs BuildKit (the default since Docker 23) for the cache mounts.

FROM node:22-bookworm-slim AS web
WORKDIR /web
# The packages change seldom, so they are a layer of their own.
COPY web/package.json web/package-lock.json web/.npmrc ./
RUN npm ci --no-audit --no-fund
COPY web/ ./
RUN npm run build

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
COPY --from=web /web/dist web/dist
# The mounts keep downloaded crates and compiled dependencies from one build to the next; what is
# in a mount does not get into the image, hence the copy.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin vitrina \
    && cp target/release/vitrina /usr/local/bin/vitrina

# The same Debian as the build stage: the binary uses its C library.
FROM debian:bookworm-slim
# Authorities that an identity provider's https:// address is trusted by.
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
# A fixed number, so that a volume keeps its owner from one version of the image to the next.
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /data vitrina \
    && install --directory --owner=vitrina --group=vitrina --mode=0750 /data
COPY --from=build /usr/local/bin/vitrina /usr/local/bin/vitrina

USER vitrina
WORKDIR /data
VOLUME /data
ENV VITRINA_LISTEN=0.0.0.0:8080 VITRINA_STORE=embedded:/data
EXPOSE 8080

# Asks the readiness of the server at VITRINA_LISTEN; the image needs no HTTP client for it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["vitrina", "health"]

ENTRYPOINT ["vitrina"]
CMD ["serve"]
