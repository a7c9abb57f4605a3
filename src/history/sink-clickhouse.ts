// The sink that inserts into ClickHouse over HTTP. Its table, in deploy/clickhouse.sql, keeps one
// row of a request however often it was inserted.

import type { Outbound } from "../base/outbound.ts";
import type { SinkSettings } from "../config/environment.ts";
import type { SinkWriter } from "./sink-writer.ts";

const answerMsMax = 60_000;
/** Of an error message, which ends in the log. */
const messageLengthMax = 300;

type ClickhouseSettings = Extract<SinkSettings, { kind: "clickhouse" }>;

export function clickhouseWriter(settings: ClickhouseSettings, outbound: Outbound): SinkWriter {
  const { url, database, user, password } = settings;
  const address = new URL(url);
  address.search = new URLSearchParams({
    database,
    query: "INSERT INTO charges FORMAT JSONEachRow",
    // Answers when the rows are stored, whatever the server has as defaults.
    async_insert: "0",
    wait_end_of_query: "1",
    date_time_input_format: "best_effort",
    // Members that the table has no column for.
    input_format_skip_unknown_fields: "1",
  }).toString();
  return {
    async write({ lines }, position) {
      const response = await outbound.fetch(address, {
        method: "POST",
        headers: {
          "content-type": "application/x-ndjson",
          "x-clickhouse-user": user,
          ...(password !== "" && { "x-clickhouse-key": password }),
        },
        body: lines,
        redirect: "error",
        signal: AbortSignal.timeout(answerMsMax),
      });
      const text = await response.text();
      // An error after the headers is in the body of a 200.
      const code = response.headers.get("x-clickhouse-exception-code");
      if (!response.ok || code !== null || /^Code: \d+\. DB::/.test(text))
        throw new Error(
          `ClickHouse answered ${response.status}: ${text.slice(0, messageLengthMax).trim()}`,
        );
      return position;
    },
  };
}
