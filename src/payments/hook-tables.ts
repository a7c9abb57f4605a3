// The inbox of webhooks.

import { type Query, timed } from "./query.ts";

const statements = {
  receiveHook: timed("receive-hook"),
  removeHooks: timed("remove-hooks"),
};

export function hookTables(query: Query) {
  return {
    /** Notes a delivery and makes its order due. True: the order is due now; false otherwise. */
    async receiveHook(hook: {
      processor: string;
      deliveryKey: string;
      externalId: string;
      bodySha256: Buffer;
    }): Promise<boolean> {
      const { processor, deliveryKey, externalId, bodySha256 } = hook;
      const values = [processor, deliveryKey, externalId, bodySha256];
      return (await query(statements.receiveHook, values)).length > 0;
    },
    /** Removes the deliveries of more than 90 days ago. */
    removeHooks: async (): Promise<void> => void (await query(statements.removeHooks, [])),
  };
}
