FROM python:3.11.13-slim-bookworm
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY transexplain transexplain
COPY workers workers
COPY orchestrator orchestrator
COPY migrations migrations
RUN pip install -c constraints.txt '.[flow,s3,serve]' \
    && useradd --create-home --uid 1000 transexplain \
    && mkdir /snapshots /audits \
    && chown transexplain /snapshots /audits
USER transexplain
WORKDIR /audits
ENTRYPOINT ["transexplain"]
CMD ["--help"]
