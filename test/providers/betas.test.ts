// What a refusal of a cloud teaches, and of whom: names that one client made up must not take
// anything from the requests of others.

import { describe, expect, test } from "vitest";
import { Betas, betaTables } from "../../src/providers/betas.ts";
import { ManualClock } from "../support/clock.ts";

const context = "context-1m-2025-08-07";
const management = "context-management-2025-06-27";
const body = { messages: [], temperature: 1, stop_sequences: ["."], context_management: {} };

function open() {
  const clock = new ManualClock();
  const reports: string[] = [];
  const betas = new Betas(betaTables.bedrock, {}, { clock, report: (one) => reports.push(one) });
  const learn = (message: string, sent: { members?: string[]; betas?: string[] } = {}) =>
    betas.learn({ status: 400, body: { message } }, "m", { members: [], betas: [], ...sent });
  return { clock, reports, betas, learn };
}

/** What another client's request has at the cloud. */
function fitted({ betas }: ReturnType<typeof open>) {
  return betas.fit(body, `${context},${management}`, "m");
}

describe("a refusal", () => {
  test.for([
    "tools.0.custom.anthropic_beta: Extra inputs are not permitted",
    "tools.0.custom.x stop_sequences: Extra inputs are not permitted",
    "tools.0.custom.x temperature: Extra inputs are not permitted",
    "temperature: Extra inputs are not permitted",
    "messages: Extra inputs are not permitted",
    "invalid beta flag",
  ])("of what its request did not send teaches nothing: %s", (message) => {
    const cloud = open();
    const before = fitted(cloud);
    expect(cloud.learn(message, { members: ["messages"] })).toBe(false);
    expect([fitted(cloud), cloud.reports]).toEqual([before, []]);
  });

  test("of a member leaves it out for an hour, for its model", async () => {
    const cloud = open();
    const message = "temperature: Extra inputs are not permitted";
    expect(cloud.learn(message, { members: ["temperature"] })).toBe(true);
    expect(fitted(cloud).body).not.toHaveProperty("temperature");
    expect(cloud.betas.fit(body, "", "other").body).toHaveProperty("temperature");
    await cloud.clock.advance(3_600_000);
    expect(fitted(cloud).body).toHaveProperty("temperature");
  });

  test("of a beta leaves out the one that it names, else those of its request", () => {
    const named = open();
    const sent = { betas: [context, management] };
    expect(
      named.learn(`Unexpected value(s) ${context} for the \`anthropic-beta\` header`, sent),
    ).toBe(true);
    expect(fitted(named).betas).toEqual([management]);
    const unnamed = open();
    expect(unnamed.learn("invalid beta flag", { betas: [context] })).toBe(true);
    expect(fitted(unnamed).betas).toEqual([management]);
    expect(unnamed.learn("invalid beta flag", { betas: [context] })).toBe(false);
  });
});

test("a member goes out only beside a beta that it needs", () => {
  const { betas } = open();
  expect(betas.fit(body, management, "m").body).toHaveProperty("context_management");
  expect(betas.fit(body, "", "m").body).not.toHaveProperty("context_management");
});

test("without the search for tools, nothing of it is left", () => {
  const search = { type: "tool_search_tool_regex_20251119", name: "tool_search_tool_regex" };
  const use = { type: "server_tool_use", id: "s", name: "tool_search_tool_regex", input: {} };
  const other = { type: "server_tool_use", id: "w", name: "web_search", input: {} };
  const request = {
    tools: [search],
    tool_choice: { type: "auto" },
    messages: [{ role: "assistant", content: [use, other] }],
  };
  const { body: left } = open().betas.fit(request, "", "m");
  expect(left).toEqual({ messages: [{ role: "assistant", content: [other] }] });
});
