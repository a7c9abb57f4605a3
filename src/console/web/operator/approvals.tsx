// What a person may do about a request that waits for an approval.

import type { JSX } from "preact";
import type { Approval } from "../../../../gen/gateway/approvals/v1/approval_pb.ts";
import { ApprovalsService } from "../../../../gen/gateway/approvals/v1/approvals_pb.ts";
import { call, forgetAll } from "../api.ts";
import { Button } from "../parts/button.tsx";
import { notify } from "../parts/messages.ts";
import { isOperatorAdmin, session } from "../session.ts";
import { words } from "./words.ts";

/** Approve is absent on what a person, or a token of his, requested. */
export function ApprovalActions({ approval }: { readonly approval: Approval }): JSX.Element | null {
  const { approvalId, personId } = approval;
  if (!isOperatorAdmin()) return null;
  const { approve, reject } = ApprovalsService.method;
  // Somebody else may have been faster: then the list shows what became of it.
  const agree = () =>
    call(approve, { approvalId })
      .then(() => notify(words.attention.approved))
      .finally(forgetAll);
  const refuse = () =>
    call(reject, { approvalId })
      .then(() => notify(words.attention.rejected))
      .finally(forgetAll);
  return (
    <span class="row">
      {personId === session.value.person?.personId ? (
        <span class="faint">{words.attention.own}</span>
      ) : (
        <Button kind="main" onClick={agree}>
          {words.attention.approve}
        </Button>
      )}
      <Button kind="quiet" onClick={refuse}>
        {words.attention.reject}
      </Button>
    </span>
  );
}
