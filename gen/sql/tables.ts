// Made of the migrations by `npm run generate`. Do not edit.

import type { Json } from "../../src/postgres/statement.ts";

export type AccountNotesRow = { accountId: string; noteId: string; at: Date; by: string; text: string };

export type AccountsRow = { accountId: string; name: string; createdAt: Date; status: "active" | "suspended" | "closed"; statusReason: string; statusChangedAt: Date | null; billingName: string; billingAddress: string; billingTaxId: string; defaultMemberLimits: Json | null; priceListId: string | null; priceListAt: Date | null };

export type AddressBalancesRow = { processor: string; chain: string; address: string; atoms: string; nonce: bigint; height: bigint; blockAt: Date };

export type AddressDustRow = { processor: string; chain: string; address: string; asset: string; height: bigint; decimals: number; atoms: string; since: Date; takenHeight: bigint | null };

export type AdminTokensRow = { digest: Buffer; tokenId: string; name: string; scope: "read" | "keys" | "money" | "all"; shown: string; createdBy: string; createdAt: Date; usedAt: Date | null; revokedAt: Date | null; personId: string | null; allowedAddresses: string[] };

export type AlertDeliveriesRow = { alertId: string; channel: string; accountId: string; state: "waiting" | "sent" | "failed"; problem: string; failures: number; nextAt: Date; endsAt: Date; madeAt: Date; isAgain: boolean };

export type AlertProgressRow = { isOnly: boolean; eventsAt: Date };

export type AlertSettingsRow = { accountId: string; belowCredits: bigint | null; belowDays: number | null; rules: Json; webhookUrl: string | null; webhookSecret: Buffer | null; changedAt: Date; percents: number[]; webhookForm: "standard" | "slack"; failingSince: Date | null; lastFailedAt: Date | null; webhookOffAt: Date | null };

export type AlertsRow = { alertId: string; accountId: string; kind: string; facts: Json; onPage: boolean; raisedAt: Date; dismissedAt: Date | null };

export type ApprovalsRow = { approvalId: string; kind: "transfer" | "decision" | "refund" | "promotion" | "admin_token" | "operator" | "sign_in_link" | "sweep_payment" | "price_list" | "account_price_list"; subject: string; accountId: string; what: string; reason: string; request: Json; requestedBy: string; personId: string; usdMicro: bigint; requestedAt: Date; endsAt: Date; state: "pending" | "approved" | "rejected" | "replaced" | "bypassed"; decidedBy: string | null; decidedAt: Date | null };

export type AuditEventsRow = { eventId: string; at: Date; actor: string; accountId: string; method: string; outcome: string; facts: Json; address: string };

export type AuditRefusalsRow = { actor: string; hour: Date; refused: number; eventId: string };

export type BudgetsRow = { accountId: string; family: "v1" | "v2"; payer: string; spent: bigint; held: bigint; running: number; lastUsedAt: Date | null; day: string; dayBase: bigint; weekBase: bigint; monthBase: bigint; totalBase: bigint; dayLimit: bigint | null; weekLimit: bigint | null; monthLimit: bigint | null; totalLimit: bigint | null; runningLimit: number | null };

export type ChainBlocksRow = { processor: string; chain: string; height: bigint; hash: string };

export type ChainPaymentsRow = { processor: string; externalId: string; chain: string; address: string; asset: string; decimals: number; atoms: string; state: "seen" | "settled" | "lost"; height: bigint | null; hash: string | null; marketRate: bigint | null; needed: number; spends: string[]; missingSince: Date | null; firstSeenAt: Date; orderId: string | null; transactions: number; blockAt: Date | null };

export type ChainsRow = { processor: string; chain: string; height: bigint | null; hash: string | null; tip: bigint | null; readAt: Date | null; nextReadAt: Date; leaseUntil: Date | null; addedAt: Date; chunkBlocks: number; failures: number; unreadBlock: bigint | null };

export type ChargeLines1Row = { accountId: string | null; requestId: string | null; month: string | null; settledAt: Date | null; line: string | null };

export type ChargeSumsRow = { accountId: string | null; requestId: string | null; month: string | null; family: string | null; keyId: string | null; secretId: string | null; model: string | null; input: number | null; output: number | null; cacheWrite5m: number | null; cacheWrite1h: number | null; cacheRead: number | null; thinking: number | null; priceVersion: string | null; grantedOutput: number | null; hold: bigint | null; amount: bigint | null; overrun: bigint | null; outputOver: number | null; thinkingOver: number | null; outcome: string | null; basis: string | null; attempts: Json | null; admittedAt: Date | null; settledAt: Date | null; tags: Json | null; madeBy: string | null; webSearches: number | null; facts: Json | null; manager: string | null; promptOver: number | null; promptAbove: number | null; cost: bigint | null; costOver: bigint | null; amountInput: bigint | null; amountOutput: bigint | null; amountCache: bigint | null; amountThinking: bigint | null; requests: number | null; completed: number | null; failed: number | null; cut: number | null; cacheSaved: bigint | null };

export type ChargesRow = { accountId: string; requestId: string; month: string; family: string; keyId: string; secretId: string | null; model: string; input: number; output: number; cacheWrite5m: number; cacheWrite1h: number; cacheRead: number; thinking: number; priceVersion: string; grantedOutput: number; hold: bigint; amount: bigint; overrun: bigint; outputOver: number; thinkingOver: number; outcome: string; basis: string; attempts: Json; admittedAt: Date; settledAt: Date; tags: Json | null; madeBy: string | null; webSearches: number; facts: Json | null; manager: string | null };

export type ClosedBudgetsRow = { accountId: string; family: string; payer: string; month: string; amount: bigint };

export type ClosedMonthsRow = { accountId: string; month: string; family: string; keyId: string; model: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; amount: bigint; amountInput: bigint; amountOutput: bigint; amountCache: bigint; amountThinking: bigint; requests: bigint; completed: bigint; failed: bigint; cut: bigint; overrun: bigint; webSearches: bigint };

export type ClosingBlocksRow = { month: string; number: number; charges: number; sha256: Buffer; form: number; settledAt: Date; requestId: string; accountId: string };

export type ClosingSumsRow = { accountId: string; month: string; family: string; keyId: string; model: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; amount: bigint; amountInput: bigint; amountOutput: bigint; amountCache: bigint; amountThinking: bigint; requests: bigint; completed: bigint; failed: bigint; cut: bigint; overrun: bigint; broken: bigint; webSearches: bigint };

export type CostVersionsRow = { costVersion: string; provider: string; model: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearch: bigint; above: number | null; aboveVersion: string | null; createdAt: Date };

export type DepositAddressesRow = { keyId: string; index: bigint; address: string; accountId: string; family: "v1" | "v2"; createdAt: Date };

export type DepositKeysRow = { keyId: string; nextIndex: bigint };

export type EndedRequestsRow = { accountId: string; requestId: string; askedAt: Date };

export type ErrorsHourlyRow = { accountId: string; hour: Date; keyId: string; reason: string; requests: bigint; lastAt: Date };

export type GivenRow = { personId: string; day: string; usdMicro: bigint };

export type HoldsRow = { accountId: string; requestId: string; family: string; keyId: string; secretId: string | null; model: string; month: string; amount: bigint; grantedOutput: number; priceVersion: string; input: number; output: number; cacheWrite5m: number; cacheWrite1h: number; cacheRead: number; thinking: number; nodeId: string | null; nonce: string; admittedAt: Date; deadline: Date; tags: Json | null; madeBy: string | null; webSearches: number; manager: string | null };

export type IdentitiesRow = { issuer: string; subject: string; identityId: string; personId: string; operator: "none" | "support" | "admin"; accounts: Json; createdAt: Date; usedAt: Date };

export type InstallationRow = { isOnly: boolean; accountId: string | null; adminTokenUsedAt: Date | null; cell: string | null; installationId: string | null };

export type KeyChangesRow = { changeId: string; keyId: string; changedAt: Date };

export type KeySecretsRow = { digest: Buffer; secretId: string; keyId: string; shown: string; createdAt: Date; expiresAt: Date | null; revokedAt: Date | null; lastUsedAt: Date | null };

export type KeyTagsRow = { keyId: string; accountId: string; tag: string; value: string };

export type KeysRow = { keyId: string; accountId: string; family: "v1" | "v2"; name: string; status: "active" | "revoked"; requestsPerMinute: number | null; allowedModels: string[]; createdBy: string; managedBy: string; accountReader: boolean; paused: boolean; pausedAt: Date | null; expiresAt: Date | null; createdAt: Date; revokedAt: Date | null; limitedByOwner: boolean; allowedAddresses: string[]; limitedByProgram: boolean; pausedByProgram: boolean; pausedByOwner: boolean; revision: number };

export type LeasesRow = { task: string; holder: string; takenAt: Date; until: Date };

export type LimitChangesRow = { accountId: string; family: string; payer: string; window: string; changedAt: Date; passed: bigint | null };

export type LinksRow = { digest: Buffer; linkId: string; purpose: "owner" | "invitation" | "recovery" | "sign_up" | "email"; personId: string; accountId: string | null; role: "viewer" | "member" | "owner" | null; login: string; email: string | null; madeBy: string; madeAt: Date; endsAt: Date; usedAt: Date | null };

export type MailsRow = { mailId: string; kind: "email" | "email_changed" | "invitation" | "recovered" | "recovery" | "sign_up"; address: string; linkId: string | null; facts: Json; state: "waiting" | "sent" | "failed"; problem: string; attempts: number; madeAt: Date; nextAt: Date; endsAt: Date };

export type ManagementKeysRow = { managementKeyId: string; accountId: string; name: string; scopes: string[]; mostKeys: number; childLimits: Json; allowedAddresses: string[]; calls: number; callsFrom: Date; createdBy: string; createdAt: Date; expiresAt: Date | null; revokedAt: Date | null };

export type ManagementSecretsRow = { digest: Buffer; managementKeyId: string; shown: string; createdAt: Date; expiresAt: Date | null; usedAt: Date | null; madeBy: string };

export type MembersRow = { accountId: string; personId: string; role: "viewer" | "member" | "owner"; joinedAt: Date };

export type MigrationsRow = { number: number; name: string; appliedAt: Date; sha256: string | null; compatibleFrom: number | null };

export type MonthArchivesRow = { month: string; sha256: Buffer; place: string; verifiedAt: Date; droppedAt: Date | null };

export type MonthClosingsRow = { month: string; charges: bigint; amount: bigint; sha256: Buffer; form: number; closedAt: Date };

export type NodesRow = { nodeId: string; startedAt: Date; process: string; silentPolls: number; polledAt: Date; report: Json | null; reportedAt: Date | null };

export type PasskeysRow = { credentialId: string; passkeyId: string; personId: string; publicKey: Buffer; counter: bigint; name: string; createdAt: Date; usedAt: Date | null };

export type PasswordsRow = { personId: string; hash: string; changedAt: Date };

export type PaymentAccountsRow = { accountId: string };

export type PaymentDecisionsRow = { decisionId: string; orderId: string; kind: "grant" | "close"; facts: string[]; depositIds: string[]; micros: bigint[]; reason: string; decidedBy: string; approvedBy: string | null; createdAt: Date };

export type PaymentDepositsRow = { processor: string; externalId: string; orderId: string | null; accountId: string; family: string; asset: string; network: string; decimals: number; atoms: string; marketRate: bigint | null; usdMicro: bigint | null; valuedBy: "quote" | "market" | "lowest" | "processor" | null; processorUsdMicro: bigint | null; state: "seen" | "settled" | "lost"; returned: boolean; confirmations: number; confirmationsNeeded: number; block: string | null; firstSeenAt: Date; settledAt: Date | null; blockAt: Date | null; blockRate: bigint | null };

export type PaymentDocumentsRow = { seller: string; kind: "receipt" | "credit_note"; year: number; n: number; number: string; orderId: string; grantN: number | null; refundN: number | null; issuedAt: Date };

export type PaymentEventsRow = { orderId: string; n: bigint; kind: "payment_seen" | "payment_credited" | "payment_short" | "payment_late" | "payment_lost" | "payment_refunded" | "payment_decided"; subject: string; at: Date; facts: Json; isRead: boolean };

export type PaymentGrantsRow = { orderId: string; n: number; micro: bigint; transferId: string | null; createdAt: Date; bonusMicro: bigint };

export type PaymentHooksRow = { processor: string; deliveryKey: string; externalId: string; receivedAt: Date; bodySha256: Buffer; depositId: string };

export type PaymentLookSlotsRow = { processor: string; slot: number; usedAt: Date; accountId: string | null };

export type PaymentNumbersRow = { seller: string; kind: string; year: number; last: number };

export type PaymentOrdersRow = { orderId: string; accountId: string; family: "v1" | "v2"; idempotencyKey: string; kind: "pack" | "direct"; usdMicro: bigint; processor: string; method: string; asset: string; network: string; decimals: number; externalId: string | null; quotedAtoms: string | null; rate: bigint | null; payTo: string; memo: string; checkoutUrl: string; state: "open" | "seen" | "partly_paid" | "paid" | "expired" | "cancelled" | "closed"; cancelledAt: Date | null; attention: string | null; faults: string[]; handled: string[]; ruleMicro: bigint; refundedUsdMicro: bigint; receiptNumber: string | null; sellerName: string; sellerAddress: string; sellerTaxId: string; buyerName: string; buyerAddress: string; buyerTaxId: string; createdBy: string; createdAt: Date; quotedUntil: Date; watchedUntil: Date; nextLookAt: Date | null; leaseUntil: Date | null; lookedAt: Date | null; failedLooks: number; hookAt: Date | null; pageOpenUntil: Date | null; version: bigint; sellerId: string; quietBefore: Date | null };

export type PaymentRefundsRow = { orderId: string; n: number; usdMicro: bigint; externalId: string | null; micro: bigint; bonusMicro: bigint; state: "asked" | "refused" | "refunding" | "completed" | "cancelling" | "cancelled"; transferId: string | null; cancelTransferId: string | null; transaction: string; reason: string; madeBy: string; createdAt: Date; endedAt: Date | null };

export type PaymentTransactionsRow = { processor: string; chain: string; tx: string; externalId: string };

export type PeopleRow = { personId: string; login: string | null; name: string; email: string | null; emailVerifiedAt: Date | null; operator: "none" | "support" | "admin"; createdAt: Date; disabledAt: Date | null; deletedAt: Date | null };

export type PeopleChangesRow = { changeId: string; subjectId: string; changedAt: Date };

export type PoolsRow = { accountId: string; family: "v1" | "v2"; posted: bigint; held: bigint; inDebt: boolean; accountStatus: string; spent: bigint; running: number; day: string; dayBase: bigint; weekBase: bigint; monthBase: bigint; totalBase: bigint; dayLimit: bigint | null; weekLimit: bigint | null; monthLimit: bigint | null; totalLimit: bigint | null; runningLimit: number | null };

export type PriceListVersionsRow = { priceListId: string; n: number; discountBp: number; models: Json; reason: string; madeBy: string; madeAt: Date };

export type PriceListsRow = { priceListId: string; name: string; madeAt: Date; madeBy: string };

export type PriceVersionsRow = { priceVersion: string; model: string; input: bigint; output: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; thinking: bigint; createdAt: Date; webSearch: bigint; promptOver: number | null; promptAbove: number | null; abovePrice: Json | null; note: string };

export type PromotionUsesRow = { codeId: string; accountId: string; orderId: string | null; refundN: number | null; usedAt: Date; transferId: string | null };

export type PromotionsRow = { codeId: string; codeSha256: Buffer; name: string; family: "v1" | "v2"; bonusMicro: bigint; endsAt: Date | null; most: number | null; used: number; needsPurchase: boolean; createdBy: string; createdAt: Date; stoppedAt: Date | null };

export type ProviderBillsRow = { provider: string; month: string; usdMicro: bigint; note: string; setBy: string; setAt: Date };

export type ProviderOutagesRow = { provider: string; model: string; openedAt: Date; answeredAt: Date | null };

export type RateSamplesRow = { asset: string; at: Date; rate: bigint };

export type RefusalsRow = { requestId: string; accountId: string; keyId: string; at: Date; reason: string; model: string; facts: Json };

export type ReplaysRow = { accountId: string; actor: string; keySha256: Buffer; method: string; requestSha256: Buffer; madeId: string; sealed: Buffer | null; endsAt: Date };

export type SalesDailyRow = { day: string; accountId: string; family: string; model: string; provider: string; costVersion: string; requests: bigint; uncosted: bigint; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearches: bigint; amount: bigint; overrun: bigint; costPico: string };

export type SalesMonthlyRow = { month: string; accountId: string; family: string; model: string; provider: string; costVersion: string; requests: bigint; uncosted: bigint; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearches: bigint; amount: bigint; overrun: bigint; costPico: string };

export type SalesProgressRow = { isOnly: boolean; settledAt: Date; requestId: string; accountId: string; completeTo: Date; isEmptying: boolean };

export type SalesSumsRow = { span: string | null; day: string | null; accountId: string | null; family: string | null; model: string | null; provider: string | null; requests: bigint | null; uncosted: bigint | null; input: bigint | null; output: bigint | null; thinking: bigint | null; cacheWrite5m: bigint | null; cacheWrite1h: bigint | null; cacheRead: bigint | null; webSearches: bigint | null; amount: bigint | null; overrun: bigint | null; costPico: string | null };

export type SalesTotalsRow = { day: string; family: string; model: string; provider: string; costVersion: string; requests: bigint; uncosted: bigint; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearches: bigint; amount: bigint; overrun: bigint; costPico: string };

export type SavedViewsRow = { viewId: string; accountId: string; personId: string | null; name: string; address: string; savedAt: Date };

export type SessionsRow = { digest: Buffer; sessionId: string; personId: string; method: "passkey" | "password" | "oidc"; passkeyId: string | null; madeAt: Date; usedAt: Date; endsAt: Date; strongUntil: Date; address: string; agent: string; endedAt: Date | null; confirmedBy: "passkey" | "password" | "oidc" | null };

export type SignInFailuresRow = { subject: Buffer; kind: "login" | "network" | "pair"; failures: number; lastAt: Date; waitUntil: Date };

export type SignUpsRow = { accountId: string; network: Buffer; madeAt: Date };

export type SimulatedFaultsRow = { orderId: string; fault: "marked" | "failed" };

export type SimulatedPaymentsRow = { depositId: string; orderId: string; asset: string; network: string; decimals: number; atoms: string; confirmations: number; lost: boolean; firstSeenAt: Date };

export type SinkCursorsRow = { sink: string; settledAt: Date; requestId: string; accountId: string; file: string; bytes: bigint; movedAt: Date };

export type SpentChallengesRow = { digest: Buffer; endsAt: Date };

export type SweepPaymentsRow = { processor: string; externalId: string; sweepId: string; address: string; asset: string; decimals: number; atoms: string; height: bigint; hash: string; at: Date; grantedBy: string | null; grantedAt: Date | null };

export type SweepsRow = { sweepId: string; processor: string; network: string; addresses: string[]; until: Date; beganAt: Date; endedAt: Date | null; createdBy: string };

export type TagSumsRow = { accountId: string; day: string; tag: string; value: string; keyId: string; model: string; input: bigint; output: bigint; thinking: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; webSearches: bigint; amount: bigint; amountInput: bigint; amountOutput: bigint; amountCache: bigint; amountThinking: bigint; requests: bigint; completed: bigint; failed: bigint; cut: bigint };

export type TagsDailyRow = { accountId: string; day: string; tag: string; value: string; keyId: string; model: string; input: bigint; output: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; thinking: bigint; amount: bigint; amountInput: bigint; amountOutput: bigint; amountCache: bigint; amountThinking: bigint; requests: bigint; completed: bigint; failed: bigint; cut: bigint; webSearches: bigint };

export type TransfersRow = { accountId: string; transferId: string; family: "v1" | "v2"; kind: "purchase" | "bonus" | "refund" | "chargeback" | "adjustment" | "deposit"; amount: bigint; postedAfter: bigint; actor: string; idempotencyKey: string; reason: string; createdAt: Date };

export type UsageDailyRow = { accountId: string; keyId: string; model: string; day: string; input: bigint; output: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; thinking: bigint; amount: bigint; amountInput: bigint; amountOutput: bigint; amountCache: bigint; amountThinking: bigint; requests: bigint; completed: bigint; failed: bigint; cut: bigint; firstEvent1: bigint; firstEvent2: bigint; firstEvent5: bigint; firstEvent10: bigint; firstEvent12: bigint; firstEvent14: bigint; firstEvent16: bigint; firstEvent18: bigint; firstEvent20: bigint; firstEvent21: bigint; webSearches: bigint; firstEvent3: bigint; firstEvent4: bigint; firstEvent6: bigint; firstEvent7: bigint; firstEvent8: bigint; firstEvent9: bigint; firstEvent11: bigint; firstEvent13: bigint; firstEvent15: bigint; firstEvent17: bigint; firstEvent19: bigint; cacheSaved: bigint };

export type UsageHourlyRow = { accountId: string; keyId: string; model: string; hour: Date; input: bigint; output: bigint; cacheWrite5m: bigint; cacheWrite1h: bigint; cacheRead: bigint; thinking: bigint; amount: bigint; amountInput: bigint; amountOutput: bigint; amountCache: bigint; amountThinking: bigint; requests: bigint; completed: bigint; failed: bigint; cut: bigint; firstEvent1: bigint; firstEvent2: bigint; firstEvent5: bigint; firstEvent10: bigint; firstEvent12: bigint; firstEvent14: bigint; firstEvent16: bigint; firstEvent18: bigint; firstEvent20: bigint; firstEvent21: bigint; webSearches: bigint; firstEvent3: bigint; firstEvent4: bigint; firstEvent6: bigint; firstEvent7: bigint; firstEvent8: bigint; firstEvent9: bigint; firstEvent11: bigint; firstEvent13: bigint; firstEvent15: bigint; firstEvent17: bigint; firstEvent19: bigint; cacheSaved: bigint };

export type UsageProgressRow = { closedTo: string; hoursFrom: string; tagsTo: string; removedTo: string };

export type VerificationsRow = { verificationId: string; startedAt: Date; endedAt: Date; startedBy: string; violationCount: number; violations: Json };
