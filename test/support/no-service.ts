// Services without methods, for tests of what does not need them.

import { AlertsService } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { OperationsService } from "../../gen/gateway/operations/v1/operations_pb.ts";
import { PaymentsService } from "../../gen/gateway/payments/v1/payments_pb.ts";
import { PeopleService } from "../../gen/gateway/people/v1/people_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { type Implementation, implement } from "../../src/contract/contract.ts";

const absent = () => async () => {
  throw new ApiError("unimplemented");
};

export const noPeople = implement<Implementation<typeof PeopleService>>(PeopleService, absent);
export const noPayments = implement<Implementation<typeof PaymentsService>>(
  PaymentsService,
  absent,
);
export const noAlerts = implement<Implementation<typeof AlertsService>>(AlertsService, absent);
export const noOperations = implement<Implementation<typeof OperationsService>>(
  OperationsService,
  absent,
);
