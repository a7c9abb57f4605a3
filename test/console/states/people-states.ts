// The states of the pages about people and keys.

import { BillingService } from "../../../gen/gateway/billing/v1/billing_pb.ts";
import { failing, type PageStates, pending } from "./answers.ts";

export const peopleStates: readonly PageStates[] = [
  {
    name: "overview",
    path: "",
    states: {
      loading: [pending(BillingService.method.getPools)],
      failed: [failing(BillingService.method.getPools, "billing_unavailable")],
      full: [],
    },
  },
];
