// A facade has no feed of changes: it learns of those that are made through it.

import type { Core } from "../contract/contract.ts";
import type { OnPayerChange, PayerChange } from "../http/key-load.ts";

/** The same core, and the changes that are made through it, of which listeners learn. */
export function watchChanges({ billing, keys, ...core }: Core): {
  core: Core;
  onPayerChange: OnPayerChange;
} {
  const listeners: ((change: PayerChange) => void)[] = [];
  const report = (change: PayerChange) => {
    for (const listener of listeners) listener(change);
  };
  const ofKey = ({ key }: { readonly key?: { readonly keyId: string } | undefined }) =>
    report({ kind: "key", keyId: key?.keyId ?? "" });
  const ofBudget = ({ accountId }: { readonly accountId: string }) =>
    report({ kind: "budget", accountId });
  const transferred = (accountId = "") => report({ kind: "transfer", accountId });
  return {
    onPayerChange: (listener) => void listeners.push(listener),
    core: {
      ...core,
      billing: {
        ...billing,
        createTransfer: after(billing.createTransfer, ({ transfer }) =>
          transferred(transfer?.accountId),
        ),
        moveCredits: after(billing.moveCredits, ({ transfers }) =>
          transferred(transfers[0]?.accountId),
        ),
        resumeAccount: after(billing.resumeAccount, ({ account }) =>
          transferred(account?.accountId),
        ),
        setAccountPriceList: after(billing.setAccountPriceList, ({ account }) =>
          transferred(account?.accountId),
        ),
        setBudget: after(billing.setBudget, ofBudget),
        resetBudget: after(billing.resetBudget, ofBudget),
        updateAccount: after(billing.updateAccount, ({ account }) =>
          report({ kind: "budget", accountId: account?.accountId ?? "" }),
        ),
      },
      keys: {
        ...keys,
        changeKeys: after(keys.changeKeys, ({ results }) => {
          for (const { keyId } of results) report({ kind: "key", keyId });
        }),
        updateKey: after(keys.updateKey, ofKey),
        pauseKey: after(keys.pauseKey, ofKey),
        resumeKey: after(keys.resumeKey, ofKey),
        rotateKey: after(keys.rotateKey, ofKey),
        revokeKey: after(keys.revokeKey, ofKey),
        revokeSecret: after(keys.revokeSecret, ofKey),
      },
    },
  };
}

/** The method, which reports what it answered before its caller learns of it. */
function after<Request, Options, Answer>(
  method: (request: Request, options?: Options) => Promise<Answer>,
  reportOf: (answer: Answer) => void,
): (request: Request, options?: Options) => Promise<Answer> {
  return async (request, options) => {
    const answer = await method(request, options);
    reportOf(answer);
    return answer;
  };
}
