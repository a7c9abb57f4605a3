// The inbox of webhooks.

import { type Query, timed } from "./query.ts";

const statements = {
  receiveHook: timed("receive-hook"),
  listNamed: timed("list-named"),
  removeHooks: timed("remove-hooks"),
};

export function hookTables(query: Query) {
  return {
    /** Notes a delivery and makes its order due. True: the order is due now; false otherwise. */
    async receiveHook(hook: {
      processor: string;
      deliveryKey: string;
      externalId: string;
      depositId: string;
      bodySha256: Buffer;
    }): Promise<boolean> {
      const { processor, deliveryKey, externalId, bodySha256, depositId } = hook;
      const values = [processor, deliveryKey, externalId, bodySha256, depositId];
      return (await query(statements.receiveHook, values)).length > 0;
    },
    /** The further payments of an order that webhooks named. */
    async listNamed(processor: string, externalId: string): Promise<string[]> {
      const rows = await query<{ deposit_id: string }>(statements.listNamed, [
        processor,
        externalId,
      ]);
      return rows.map(({ deposit_id }) => deposit_id);
    },
    /** Removes the deliveries of more than 90 days ago. */
    removeHooks: async (): Promise<void> => void (await query(statements.removeHooks, [])),
  };
}
