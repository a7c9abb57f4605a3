// One Core of several cells. The credential of a call names the cell, and the call goes there as it
// is. Few calls have none: links and webhooks name their cell, too, and who signs in is looked for
// in all cells. Where nothing names a cell, or the name is unknown, the call goes to cell `00`.

import { hash } from "node:crypto";
import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import type { CallOptions } from "@connectrpc/connect";
import type {
  LocateRequestSchema,
  ReadOidcRequestSchema,
  ReadOidcResponse,
} from "../../gen/gateway/cells/v1/cells_pb.ts";
import { SessionCellSchema } from "../../gen/gateway/people/v1/profile_pb.ts";
import {
  CellChoiceSchema,
  SignInWithPasswordResponseSchema,
} from "../../gen/gateway/people/v1/sign_in_pb.ts";
import { cellAt, plainCell } from "../base/cells.ts";
import { type ApiError, toApiError } from "../base/errors.ts";
import { otherSessionsHeader } from "./callers.ts";
import {
  boundMethod,
  type ClientOf,
  type Core,
  callHeaders,
  type Implementation,
  implement,
  type Methods,
  serviceTypes,
} from "./contract.ts";

/** One cell, as a facade knows it. */
export type Cell = {
  /** Two digits. */
  readonly name: string;
  readonly core: Core;
  /** As `CellsService.Locate`. */
  locate(who: Who): Promise<boolean>;
  /** As `CellsService.ReadOidc`, for the client of a call. */
  readOidc(request: OidcReturn, options: CallOptions | undefined): Promise<ReadOidcResponse>;
};

type Who = MessageInitShape<typeof LocateRequestSchema>["who"];
type OidcReturn = MessageInitShape<typeof ReadOidcRequestSchema>;

/** `cells`: at least one. `signUp`: their parts of the new people. Empty: all go to the first. */
export function cellsCore(
  cells: readonly Cell[],
  signUp: readonly { readonly cell: string; readonly weight: number }[] = [],
): Core {
  const routes = createRoutes(cells, signUp);
  const cores = cells.map(({ core }) => core);
  const routed = <S extends Methods>(
    service: S,
    clients: readonly Implementation<S, CallOptions>[],
  ) => routeAll(service, clients, routes);
  const people = routed(
    serviceTypes.people,
    cores.map((core) => core.people),
  );
  const payments = routed(
    serviceTypes.payments,
    cores.map((core) => core.payments),
  );
  const operations = routed(
    serviceTypes.operations,
    cores.map((core) => core.operations),
  );
  return {
    billing: routed(
      serviceTypes.billing,
      cores.map((core) => core.billing),
    ),
    keys: routed(
      serviceTypes.keys,
      cores.map((core) => core.keys),
    ),
    inference: routed(
      serviceTypes.inference,
      cores.map((core) => core.inference),
    ),
    people: { ...people, ...comingIn(people, routes), ...ofBrowser(people, cells, routes) },
    payments: {
      ...payments,
      receiveWebhook(request, options) {
        // The name of a processor ends with its cell: `btcpay-07`.
        const cell = /-(\d{2})$/.exec(request.processor ?? "")?.[1];
        return routes.named(cell).core.payments.receiveWebhook(request, withoutOthers(options));
      },
    },
    alerts: routed(
      serviceTypes.alerts,
      cores.map((core) => core.alerts),
    ),
    operations: { ...operations, search: searchAll(operations, routes) },
  };
}

type Routes = ReturnType<typeof createRoutes>;

// The random characters of every secret begin with the name of its cell.
const credentialForm = /^\s*(?:bearer\s+(?:sk-gw2-[12]|[ma][kd]m?-gw2-)|session\s+)(\d{2})/i;

function createRoutes(
  cells: readonly Cell[],
  signUp: readonly { readonly cell: string; readonly weight: number }[],
) {
  const [first] = cells;
  if (!first) throw new Error("no cell was given");
  const indexes = new Map(cells.map(({ name }, index) => [name, index]));
  const plain = indexes.get(plainCell) ?? 0;
  const indexOf = (name: string | undefined) =>
    (name === undefined ? undefined : indexes.get(name)) ?? plain;
  const at = (index: number) => cells[index] ?? first;
  const named = (name: string | undefined) => at(indexOf(name));
  const credentialCell = (options: CallOptions | undefined) =>
    credentialForm.exec(callHeaders(options?.headers).get("authorization") ?? "")?.[1];
  /** The options without credentials of other cells. */
  const optionsFor = (cell: Cell, options: CallOptions | undefined): CallOptions | undefined => {
    if (named(credentialCell(options)) === cell) return withoutOthers(options);
    const headers = new Headers(options?.headers);
    headers.delete("authorization");
    headers.delete(otherSessionsHeader);
    return { ...options, headers };
  };
  const weights = signUp.length > 0 ? signUp : [{ cell: first.name, weight: 1 }];

  return {
    /** The cell with this name, or the plain one. */
    named,
    /** The place in `cells` of the cell that the credential of a call names. */
    indexOf: (options: CallOptions | undefined) => indexOf(credentialCell(options)),
    ofCredential: (options: CallOptions | undefined) => named(credentialCell(options)),
    hasCredential: (options: CallOptions | undefined) =>
      callHeaders(options?.headers).has("authorization"),
    /** The cell of a token, and the options for it. */
    ofToken(token: string, options: CallOptions | undefined) {
      const cell = named(cellAt(token));
      return { cell, options: optionsFor(cell, options) };
    },
    optionsFor,
    /**
     * The cells that know somebody. `unknown`: an error of those that do not say, if there is one;
     * that of a cell which is there before that of one which is down.
     */
    async locate(who: Who): Promise<{ known: readonly Cell[]; unknown: ApiError | undefined }> {
      const answers = await Promise.allSettled(cells.map((cell) => cell.locate(who)));
      const failed = answers.flatMap((answer) =>
        answer.status === "rejected" ? [toApiError(answer.reason)] : [],
      );
      return {
        known: cells.filter((_, index) => {
          const answer = answers[index];
          return answer?.status === "fulfilled" && answer.value;
        }),
        unknown: failed.find((error) => !isDown(error)) ?? failed[0],
      };
    },
    /** The sessions in other cells that come with a call, each as the credential of a call. */
    others(options: CallOptions | undefined): { cell: Cell; options: CallOptions }[] {
      const tokens = callHeaders(options?.headers).get(otherSessionsHeader)?.split(" ") ?? [];
      const own = named(credentialCell(options));
      return tokens.flatMap((token) => {
        const cell = named(cellAt(token));
        if (cell === own) return [];
        const headers = new Headers(options?.headers);
        headers.delete(otherSessionsHeader);
        headers.set("authorization", `Session ${token}`);
        return [{ cell, options: { ...options, headers } }];
      });
    },
    /** Where somebody becomes a person. The same one always goes to the same cell. */
    forNew(who: string): Cell {
      const total = weights.reduce((sum, { weight }) => sum + weight, 0);
      const draw = hash("sha256", who, "buffer").readUInt32BE(0) % total;
      // Each cell `weight` times: the draw is a place in that list.
      let passed = 0;
      for (const { cell, weight } of weights) {
        passed += weight;
        if (draw < passed) return named(cell);
      }
      return first;
    },
    /** The answer of the first cell that is there, for a call that each of them can answer. */
    async anywhere<T>(
      options: CallOptions | undefined,
      call: (cell: Cell, options: CallOptions | undefined) => Promise<T>,
    ): Promise<T> {
      let last: unknown;
      for (const cell of [at(plain), ...cells.filter((_, index) => index !== plain)])
        try {
          return await call(cell, optionsFor(cell, options));
        } catch (error) {
          if (!isAway(error)) throw error;
          last = error;
        }
      throw last;
    },
  };
}

function isAway(error: unknown): boolean {
  const { reason } = toApiError(error);
  return reason === "gateway_unavailable" || reason === "database_unavailable";
}

/** True for the error of a cell that is not there, or too slow to say something. */
export function isDown(error: unknown): boolean {
  return isAway(error) || toApiError(error).reason === "timeout";
}

/** The options without the sessions in other cells, which concern no core. */
function withoutOthers(options: CallOptions | undefined): CallOptions | undefined {
  if (!callHeaders(options?.headers).has(otherSessionsHeader)) return options;
  const headers = new Headers(options?.headers);
  headers.delete(otherSessionsHeader);
  return { ...options, headers };
}

/** A client of all cells: each call goes where its credential says. */
function routeAll<S extends Methods>(
  service: S,
  clients: readonly Implementation<S, CallOptions>[],
  { indexOf }: Routes,
): ClientOf<S> {
  return implement<ClientOf<S>>(service, (desc) => {
    const runs = clients.map((client) => boundMethod(client, desc).run);
    return (request: MessageInitShape<DescMessage>, options: CallOptions = {}) => {
      const run = runs[indexOf(options)];
      if (!run) throw new Error("no cell was given");
      return run(create(desc.input, request), withoutOthers(options) ?? options);
    };
  });
}

/** The calls with which people come in, before they have a credential. */
function comingIn(
  people: Core["people"],
  routes: Routes,
): Pick<
  Core["people"],
  | "beginSignIn"
  | "signInWithPasskey"
  | "signInWithPassword"
  | "redeemLink"
  | "confirmEmail"
  | "beginPasskey"
  | "beginOidc"
  | "finishOidc"
  | "signUp"
> {
  const { ofToken, optionsFor, locate, forNew, anywhere, named, hasCredential } = routes;
  /** Throws the error of a cell that does not answer, if nobody else knows the person. */
  const findOne = async (who: Who): Promise<readonly Cell[]> => {
    const { known, unknown } = await locate(who);
    if (known.length === 0 && unknown) throw unknown;
    return known;
  };

  return {
    beginSignIn(request, given) {
      if (hasCredential(given)) return people.beginSignIn(request, given);
      return anywhere(given, ({ core }, options) => core.people.beginSignIn(request, options));
    },
    async signInWithPasskey(request, options) {
      const credentialId = credentialOf(request.answerJson ?? "");
      const [cell = named(undefined)] = await findOne({
        case: "credentialId",
        value: credentialId,
      });
      return cell.core.people.signInWithPasskey(request, optionsFor(cell, options));
    },
    async signInWithPassword(request, options) {
      const signIn = (cell: Cell) =>
        cell.core.people.signInWithPassword(request, optionsFor(cell, options));
      if (request.cell) return signIn(named(request.cell));
      const known = await findOne({ case: "login", value: request.login ?? "" });
      const [only = named(undefined), ...others] = known;
      if (others.length === 0) return signIn(only);
      const tried = await Promise.allSettled(known.map(signIn));
      const accepted = known.flatMap((cell, index) => {
        const one = tried[index];
        return one?.status === "fulfilled" ? [{ cell, answer: one.value }] : [];
      });
      const [first, ...more] = accepted;
      // The error of a cell that refused, rather than of one that does not answer.
      if (!first) {
        const errors = tried.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
        throw errors.find((error) => !isAway(error)) ?? errors[0];
      }
      if (more.length === 0) return first.answer;
      const choices = await Promise.all(
        accepted.map(({ cell, answer }) => leave(cell, answer.grant?.token ?? "", options)),
      );
      return create(SignInWithPasswordResponseSchema, { choices });
    },
    redeemLink(request, given) {
      const { cell, options } = ofToken(request.token ?? "", given);
      return cell.core.people.redeemLink(request, options);
    },
    confirmEmail(request, given) {
      const { cell, options } = ofToken(request.token ?? "", given);
      return cell.core.people.confirmEmail(request, options);
    },
    beginPasskey(request, given) {
      if (!request.linkToken) return people.beginPasskey(request, given);
      const { cell, options } = ofToken(request.linkToken, given);
      return cell.core.people.beginPasskey(request, options);
    },
    beginOidc(request, given) {
      if (request.linkToken) {
        const { cell, options } = ofToken(request.linkToken, given);
        return cell.core.people.beginOidc(request, options);
      }
      if (hasCredential(given)) return people.beginOidc(request, given);
      return anywhere(given, ({ core }, options) => core.people.beginOidc(request, options));
    },
    async finishOidc(request, given) {
      const { provider = "", flow = "", query = "" } = request;
      // As `people/flows.ts` writes it.
      const [kind, , linkToken] = flow.split(".");
      if (kind === "link") {
        const { cell, options } = ofToken(linkToken ?? "", given);
        return cell.core.people.finishOidc(request, options);
      }
      if (kind !== "sign-in") return people.finishOidc(request, given);
      const read = await anywhere(given, (cell, options) =>
        cell.readOidc({ provider, flow, query }, options),
      );
      const { issuer = "", subject = "" } = read.identity ?? {};
      const known = await findOne({ case: "identity", value: { issuer, subject } });
      const cell = known[0] ?? forNew(`${issuer} ${subject}`);
      const finish = { provider, flow, query: read.query };
      return cell.core.people.finishOidc(finish, optionsFor(cell, given));
    },
    async signUp(request, options) {
      const email = (request.email ?? "").trim().toLowerCase();
      const { known, unknown } = await locate({ case: "login", value: email });
      // A cell that is down keeps nobody from signing up elsewhere. One that refuses the question
      // is set up wrong: whom it knows would become a second person.
      if (known.length === 0 && unknown && !isDown(unknown)) throw unknown;
      const cell = known[0] ?? forNew(email);
      return cell.core.people.signUp(request, optionsFor(cell, options));
    },
  };
}

/** A browser may have a session in each cell. */
function ofBrowser(
  people: Core["people"],
  cells: readonly Cell[],
  routes: Routes,
): Pick<Core["people"], "getSession" | "signOut"> {
  return {
    async getSession(request, options) {
      const answer = await people.getSession(request, options);
      const current = routes.ofCredential(options);
      const signedIn = [current, ...routes.others(options).map(({ cell }) => cell)];
      answer.cells = cells.map((cell) =>
        create(SessionCellSchema, {
          cell: cell.name,
          current: cell === current,
          signedIn: signedIn.includes(cell),
        }),
      );
      return answer;
    },
    async signOut(request, options) {
      // Whoever leaves a browser leaves all cells. One that does not answer keeps nobody.
      const others = routes.others(options);
      await Promise.allSettled(
        others.map(({ cell, options: call }) => cell.core.people.signOut(request, call)),
      );
      return people.signOut(request, options);
    },
  };
}

/** As many as one cell answers. */
const hitsMax = 20;

/** Operators find what is in the cells to which they have signed in, first that of the call. */
function searchAll(operations: Core["operations"], routes: Routes): Core["operations"]["search"] {
  return async (request, options) => {
    const others = request.allAccounts ? routes.others(options) : [];
    if (others.length === 0) return operations.search(request, options);
    const [own, ...found] = await Promise.all([
      operations.search(request, options),
      ...others.map(({ cell, options: call }) =>
        cell.core.operations.search(request, call).catch(() => undefined),
      ),
    ]);
    for (const hit of own.hits) hit.cell = routes.ofCredential(options).name;
    found.forEach((answer, index) => {
      for (const hit of answer?.hits ?? []) hit.cell = others[index]?.cell.name ?? "";
      own.hits.push(...(answer?.hits ?? []));
      // A cell that did not answer, too.
      own.incomplete ||= answer?.incomplete ?? true;
    });
    own.incomplete ||= own.hits.length > hitsMax;
    own.hits.splice(hitsMax);
    return own;
  };
}

/** Ends a session that was begun to try a password. Returns what its person would choose. */
async function leave({ name: cell, core }: Cell, token: string, options: CallOptions | undefined) {
  const headers = new Headers(options?.headers);
  headers.delete(otherSessionsHeader);
  headers.set("authorization", `Session ${token}`);
  const call = { ...options, headers };
  const { accounts } = await core.people.getSession({}, call);
  await core.people.signOut({}, call);
  return create(CellChoiceSchema, { cell, accountNames: accounts.map(({ name }) => name) });
}

/** The id of the passkey in an answer. Empty: it has none. */
function credentialOf(answerJson: string): string {
  try {
    const id: unknown = Object(JSON.parse(answerJson)).id;
    return typeof id === "string" ? id : "";
  } catch {
    return "";
  }
}
