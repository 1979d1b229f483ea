# PostgreSQL with pgfresh in front, from the files of a release: no compiler is needed. The context is the folder with these files.
#   docker build -f docker/release.Dockerfile -t pgfresh target/release-files
# BASE may be any Debian. If it has no PostgreSQL, but pip or npm, pgfresh downloads one into the image.
#   docker run --rm --tmpfs /ram:mode=1777 -e PGFRESH_PASSWORD=secret -p 127.0.0.1:5432:5432 pgfresh
ARG POSTGRES=17
ARG BASE=postgres:${POSTGRES}-bookworm
FROM ${BASE}
COPY *.deb /tmp/pgfresh/
RUN dpkg --install /tmp/pgfresh/pgfresh_*_"$(dpkg --print-architecture)".deb && rm -r /tmp/pgfresh
# The server must not run as root, and pgfresh need not. A tmpfs at /ram gets the mode of this directory, but not its owner.
RUN getent passwd postgres || useradd --system --user-group --home-dir /var/lib/postgresql postgres
RUN install -d -m 1777 /ram && install -d -o postgres -g postgres /var/cache/pgfresh
USER postgres
ENV PGFRESH_CACHE=/var/cache/pgfresh PGFRESH_PLACE=/ram PGFRESH_LISTEN=0.0.0.0 PGFRESH_PORT=5432
# initdb once, in the image.
RUN pgfresh run --place disk -- true
EXPOSE 5432
# Without --interactive, standard input is /dev/null, and it ends by a signal.
ENTRYPOINT ["pgfresh"]
CMD ["serve"]
