// `npm run verify-ledger`: checks every invariant of the ledger and prints each violation. Exit
// status: 0 without violations, 1 with violations or if the check cannot run.

import { onLedger, verify } from "./ledger.ts";

await onLedger((ledger) => verify(ledger, "verify-ledger"));
