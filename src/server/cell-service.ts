// What a core answers to the facades of several cells: what it is, and whom it knows.

import { create } from "@bufbuild/protobuf";
import {
  type CellsService,
  DescribeResponseSchema,
  IdentitySchema,
  LocateResponseSchema,
  ReadOidcResponseSchema,
} from "../../gen/gateway/cells/v1/cells_pb.ts";
import { ApiError, toApiError } from "../base/errors.ts";
import { isFacade } from "../base/facade-proof.ts";
import type { Call, Implementation } from "../contract/contract.ts";
import type { CellServing } from "../grpc/grpc.ts";
import type { People } from "../people/people.ts";

/** `chainKeys`: of the configuration file of this moment. */
export function createCellServing(parts: {
  readonly cell: string;
  readonly installationId: string;
  readonly contentKeys: readonly Uint8Array[];
  readonly chainKeys: () => readonly string[];
  readonly people: People["forCells"];
}): CellServing {
  const { cell, installationId, contentKeys, chainKeys, people } = parts;
  const check = ({ requestHeader }: Call) => {
    if (!isFacade(contentKeys, requestHeader.get("authorization") ?? ""))
      throw new ApiError("invalid_key");
  };
  /** The answer of `work`, or an error that a caller understands. */
  const answer = async <T>(call: Call, work: () => Promise<T>): Promise<T> => {
    try {
      check(call);
      return await work();
    } catch (error) {
      throw toApiError(error);
    }
  };
  const service: Implementation<typeof CellsService> = {
    describe: (_, call) =>
      answer(call, async () =>
        create(DescribeResponseSchema, { cell, installationId, chainKeys: [...chainKeys()] }),
      ),
    locate: ({ who }, call) =>
      answer(call, async () => create(LocateResponseSchema, { found: await people.knows(who) })),
    readOidc: (request, call) =>
      answer(call, async () => {
        const { identity, query } = await people.readOidc(request, call);
        return create(ReadOidcResponseSchema, {
          identity: create(IdentitySchema, identity),
          query,
        });
      }),
  };
  return {
    service,
    refusalOf(addressed) {
      const [name, database = installationId] = addressed.split("/");
      if (name === cell && database === installationId) return undefined;
      return new ApiError("gateway_unavailable", {
        message:
          name === cell
            ? `This core of cell ${cell} has another database than the others.`
            : `This core serves cell ${cell}, and the call is for cell ${name}.`,
      });
    },
  };
}
