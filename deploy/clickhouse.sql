-- The table that EXPORT_SINK fills in ClickHouse. docs/operating/history.md explains it.
--
-- A charge may come more than once; rows of one request are the same, and all but one are dropped
-- when parts are merged. Until then `FINAL` leaves them out.
CREATE TABLE charges
(
    account_id     LowCardinality(String),
    request_id     String,
    family         LowCardinality(String),
    key_id         LowCardinality(String),
    secret_id      Nullable(String),
    model          LowCardinality(String),
    outcome        LowCardinality(String),
    basis          LowCardinality(String),
    price_version  LowCardinality(String),
    admitted_at    DateTime64(6, 'UTC'),
    settled_at     DateTime64(6, 'UTC'),
    attempts       Array(Tuple(
        provider LowCardinality(String),
        outcome LowCardinality(String),
        status UInt16,
        firstEventAfter String
    )),
    tags           Map(LowCardinality(String), String),
    -- Micro-credits: 1 credit is 1,000,000 of them, and 0.005 USD.
    hold           Int64,
    amount         Int64,
    overrun        Int64,
    input          Int32,
    output         Int32,
    thinking       Int32,
    cache_write_5m Int32,
    cache_write_1h Int32,
    cache_read     Int32,
    granted_output Int32,
    output_over    Int32,
    thinking_over  Int32,
    web_searches   Int32 DEFAULT 0
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(admitted_at)
ORDER BY (account_id, admitted_at, request_id);
