// What the public description says of a route, beside what the route itself says: its method, its
// path and its credential. Each handler states it next to the code that reads and renders.

import type { ErrorReason } from "../base/errors.ts";
import { described, ref, type Schema } from "../base/json-schema.ts";
import { type PagedMethod, pageSizeDefault } from "../base/paging.ts";
import { pageSizeMaxOf } from "../contract/limits.ts";
import type { CredentialForm } from "./authenticate.ts";
import type { Envelope } from "./error-table.ts";

/** A route, as far as the description needs it. */
export type DescribedRoute = {
  readonly method: "GET" | "POST";
  /** As Fastify has it, with `:name`. */
  readonly path: string;
  /** Absent: `failures` of the operation says how errors look. */
  readonly envelope?: Envelope | undefined;
  /** `cookie`: the session of a browser. Absent: none is needed. */
  readonly credential?: CredentialForm | "cookie" | undefined;
  readonly needsVersion?: boolean | undefined;
  readonly operation: Operation;
};

export type Operation = {
  /** The name of the function in generated clients. */
  readonly id: string;
  readonly summary: string;
  readonly description?: string;
  /** Parameters of the query, by name. */
  readonly query?: Parameters;
  /** Names in the path, as the route has them. */
  readonly path?: Parameters;
  /** The schema of the body. Absent: it has none. */
  readonly body?: Schema;
  /** The content type of the body. Default: JSON. */
  readonly bodyType?: string;
  /** Schemas of the answer, by content type. */
  readonly answer: Readonly<Record<string, Schema>>;
  /** True: the route answers from a provider, and takes tags. */
  readonly isPaid?: true;
  /** Reasons for errors that only this route has. */
  readonly errors?: readonly ErrorReason[];
  /** Bodies that are no success, by status or `default`, where they are not plain errors. */
  readonly failures?: Readonly<Record<string, Schema>>;
};

export type Parameters = Readonly<Record<string, Schema>>;

export const json = "application/json";
export const eventStream = "text/event-stream";

/** A stream of events. OpenAPI has no word for it: the schema is that of the `data` of each. */
export function eventsOf(name: string, description = ""): Schema {
  return {
    type: "string",
    contentMediaType: eventStream,
    contentSchema: ref(name),
    ...(description !== "" && { description }),
  };
}

/** The parameters of a range of time. */
export const rangeParameters = {
  from: described("A day, or a time with its offset: the first time of admission.", {
    type: "string",
  }),
  to: described("The end of the range, exclusive.", { type: "string" }),
};

/** The parameters of a page of what a method lists. */
export function pageParameters(method: PagedMethod) {
  return {
    limit: described("The most entries of the answer.", {
      type: "integer",
      minimum: 1,
      maximum: pageSizeMaxOf(method),
      default: pageSizeDefault,
    }),
    page_token: described("`next_page_token` of the page before.", { type: "string" }),
    account_id: described("The account, for the admin token. A key reads its own.", {
      type: "string",
    }),
  };
}
