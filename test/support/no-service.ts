// Services without methods, for tests of what does not need them.

import { AlertsService } from "../../gen/gateway/alerts/v1/alerts_pb.ts";
import { ApiError } from "../../src/base/errors.ts";
import { type Implementation, implement, serviceTypes } from "../../src/contract/contract.ts";

const absent = () => async () => {
  throw new ApiError("unimplemented");
};

export const noPeople = implement<Implementation<typeof serviceTypes.people>>(
  serviceTypes.people,
  absent,
);
export const noPayments = implement<Implementation<typeof serviceTypes.payments>>(
  serviceTypes.payments,
  absent,
);
export const noAlerts = implement<Implementation<typeof AlertsService>>(AlertsService, absent);
export const noOperations = implement<Implementation<typeof serviceTypes.operations>>(
  serviceTypes.operations,
  absent,
);
