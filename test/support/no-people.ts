// A people service without methods, for tests of what needs no people.

import { PeopleService } from "../../gen/gateway/people/v1/people_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { type Implementation, implement } from "../../src/contract/contract.ts";

export const noPeople = implement<Implementation<typeof PeopleService>>(
  PeopleService,
  () => async () => {
    throw new ApiError("unimplemented");
  },
);
