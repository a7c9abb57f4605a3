import { execFileSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { nearestName } from "../../src/base/nearest-name.ts";
import { defaultCatalog, nanoPerToken, readCatalogFile } from "../../src/config/catalog.ts";
import { describeCatalog } from "../../src/config/describe.ts";
import { findMissingCredentials } from "../../src/config/providers.ts";

const multipliers =
  "price_multipliers: { cache_write_5m: 1.25, cache_write_1h: 2, cache_read: 0.1, thinking: 1 }";

function model(
  id: string,
  members: { price?: string; routes?: string; more?: string } = {},
): string {
  const {
    price = "{ input: 1, output: 5 }",
    routes = "[[{ provider: sim }]]",
    more = "",
  } = members;
  return `  - id: ${id}
    display_name: A model
    tier: opus
    created_at: 2026-02-05T00:00:00Z
    context_tokens: 200000
    max_output_tokens: 64000
    thinking: adaptive
    price: ${price}
    routes: ${routes}
${more}`;
}

const file = (models: string, more = "providers: { sim: { kind: simulated } }") =>
  `${multipliers}\nmodels:\n${models}\n${more}\n`;

function problemsOf(text: string): string[] {
  try {
    readCatalogFile(text);
  } catch (error) {
    if (error instanceof Error)
      return error.message
        .split("\n")
        .slice(1)
        .map((line) => line.trim());
  }
  return [];
}

describe("the built-in file", () => {
  test("holds the price table of the product, in nano-credits per token", () => {
    const { models } = readCatalogFile(defaultCatalog());
    const row = (...amounts: bigint[]) => {
      const [
        input = 0n,
        output = 0n,
        cacheWrite5m = 0n,
        cacheWrite1h = 0n,
        cacheRead = 0n,
        thinking = 0n,
      ] = amounts;
      return { input, output, cacheWrite5m, cacheWrite1h, cacheRead, thinking };
    };
    expect(Object.fromEntries(models.map(({ id, price }) => [id, price]))).toEqual({
      "model-opus-4.6": row(700_000n, 3_500_000n, 875_000n, 1_400_000n, 70_000n, 3_500_000n),
      "model-sonnet-4.6": row(420_000n, 2_100_000n, 525_000n, 840_000n, 42_000n, 2_100_000n),
      "model-haiku-4.5": row(140_000n, 700_000n, 175_000n, 280_000n, 14_000n, 700_000n),
    });
  });

  test("has an alias for each tier, in catalogue order, and no feature enabled", () => {
    const { aliases, models, features } = readCatalogFile(defaultCatalog());
    expect(models.map(({ id }) => id)).toEqual([
      "model-opus-4.6",
      "model-sonnet-4.6",
      "model-haiku-4.5",
    ]);
    expect(aliases).toEqual({
      opus: "model-opus-4.6",
      sonnet: "model-sonnet-4.6",
      haiku: "model-haiku-4.5",
    });
    expect(features).toEqual({ serverTools: false });
  });
});

describe("a file without models or providers", () => {
  const builtIn = readCatalogFile(defaultCatalog());
  const note = "(the built-in ones: the file has none)";

  test("keeps the built-in ones, and check-config says so", () => {
    const { models, providers, aliases, ...file } = readCatalogFile("hosted_tools: refuse\n");
    expect({ models, providers, aliases }).toEqual({
      models: builtIn.models,
      providers: builtIn.providers,
      aliases: builtIn.aliases,
    });
    expect(file).toMatchObject({ hostedTools: "refuse", builtIn: ["models", "providers"] });
    const printed = describeCatalog(readCatalogFile("hosted_tools: refuse\n"));
    expect(printed).toContain(`models ${note}, with prices`);
    expect(printed).toContain(`providers ${note}\n  simulated: simulated;`);
    expect(describeCatalog(builtIn)).not.toContain(note);
  });

  test("has its own aliases and multipliers where it names them", () => {
    const own = "aliases: { best: model-opus-4.6 }\nprice_multipliers: { cache_write_5m: 2 }\n";
    expect(problemsOf(own)).toContain(
      "models[0].price.thinking: is required, because price_multipliers does not state it either",
    );
    const { aliases } = readCatalogFile("aliases: { best: model-opus-4.6 }");
    expect(aliases).toEqual({ best: "model-opus-4.6" });
  });

  test("with models of its own keeps the built-in provider", () => {
    const text = file(model("m", { routes: "[[{ provider: simulated }]]" }), "");
    const { models, providers, aliases } = readCatalogFile(text);
    expect(models.map(({ id }) => id)).toEqual(["m"]);
    expect(providers).toEqual(builtIn.providers);
    expect(aliases).toEqual({});
  });

  test("with providers alone is wrong: no model would use them", () => {
    expect(problemsOf("providers: { mine: { kind: simulated } }")).toEqual([
      "models: is required with providers, because the built-in models have the built-in provider",
    ]);
  });
});

describe("prices", () => {
  test("a price that is not a whole number of nano-credits per token is rejected", () => {
    expect(problemsOf(file(model("m", { price: "{ input: 1.000001, output: 5 }" })))).toEqual([
      "models[0].price.input: 1.000001 USD per million tokens is not a whole number of nano-credits per token (steps of 0.000005 USD)",
    ]);
  });

  test("a derived price that is not whole is rejected unless the model states it", () => {
    const price = "{ input: 0.000005, output: 5 }";
    expect(problemsOf(file(model("m", { price })))).toEqual(
      ["cache_write_5m: 0.000005 × 1.25", "cache_read: 0.000005 × 0.1"].map((place) =>
        expect.stringContaining(`models[0].price.${place} USD per million tokens is not a whole`),
      ),
    );
    const stated = "{ input: 0.000005, output: 5, cache_write_5m: 0.00001, cache_read: 0 }";
    expect(readCatalogFile(file(model("m", { price: stated }))).models[0]?.price).toEqual({
      input: 1n,
      output: 1_000_000n,
      cacheWrite5m: 2n,
      cacheWrite1h: 2n,
      cacheRead: 0n,
      thinking: 1_000_000n,
    });
  });

  test("a model without a complete price is rejected, and never free", () => {
    const text = `models:\n${model("m", { price: "{ input: 1 }" })}\nproviders: { sim: { kind: simulated } }\n`;
    const names = ["output", "thinking", "cache_write_5m", "cache_write_1h", "cache_read"];
    expect(problemsOf(text).map((problem) => problem.split(":")[0])).toEqual(
      names.map((name) => `models[0].price.${name}`),
    );
    expect(problemsOf(file(model("m", { price: "{ input: 0, output: 5 }" })))).toEqual([
      "models[0].price.input: must be more than 0",
    ]);
  });

  test("a price has no exponent, sign or separator, and can be billed", () => {
    for (const text of [
      "1e3",
      "-1",
      "+1",
      "1,000",
      "1_000",
      ".5",
      "5.",
      "0x10",
      "Infinity",
      "1 ",
      "999999999",
    ]) {
      expect(typeof nanoPerToken(text), text).toBe("string");
    }
  });

  test("a web search has a price of its own, in dollars per 1,000", () => {
    const priceOf = (per: string) =>
      readCatalogFile(file(model("m", { price: `{ input: 1, output: 5, per: ${per} }` }))).models[0]
        ?.price.webSearch;
    expect(priceOf("{ web_search: 10.00 }")).toBe(2_000_000n);
    expect(priceOf("{ web_search: 0.000005 }")).toBe(1n);
    expect(priceOf("{ web_search: 0 }")).toBe(0n);
    expect(priceOf("{}")).toBeUndefined();
    const problems = (per: string) =>
      problemsOf(file(model("m", { price: `{ input: 1, output: 5, per: ${per} }` })));
    expect(problems("{ web_search: -1 }")).toEqual([
      "models[0].price.per.web_search: must be a decimal number of US dollars per 1,000 searches, not -1",
    ]);
    expect(problems("{ web_search: 0.000001 }")).toEqual([
      "models[0].price.per.web_search: 0.000001 USD per 1,000 searches is not a whole number of micro-credits per search (steps of 0.000005 USD)",
    ]);
    expect(problems("{ web_search: 999999999 }")).toEqual([
      "models[0].price.per.web_search: 999999999 USD per 1,000 searches is more than can be billed",
    ]);
    expect(problems("{ web_serch: 1 }")[0]).toMatch(/^models\[0\]\.price\.per\.web_serch: /);
  });

  test("tools that providers run are not offered without a price of web searches", () => {
    const text = (price: string) =>
      `${file(model("m", { price }) + model("n", { price: "{ inherit: m }" }))}features: { server_tools: true }\n`;
    expect(problemsOf(text("{ input: 1, output: 5 }"))).toEqual([
      "features.server_tools: needs a price of web searches: per.web_search of m",
    ]);
    const { models } = readCatalogFile(text("{ input: 1, output: 5, per: { web_search: 10 } }"));
    expect(models.map(({ price }) => price.webSearch)).toEqual([2_000_000n, 2_000_000n]);
  });

  test("dollars are converted to nano-credits exactly", () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 1n, max: 600_000_000n }), (nano) => {
        // One nano-credit per token is 0.000005 USD per million.
        const millionths = (nano * 5n).toString().padStart(7, "0");
        const dollars = `${millionths.slice(0, -6)}.${millionths.slice(-6)}`;
        expect(nanoPerToken(dollars)).toBe(nano);
      }),
    );
    expect(nanoPerToken("0.028")).toBe(5_600n);
    expect(nanoPerToken("0.000005")).toBe(1n);
    expect(nanoPerToken("3000")).toBe(600_000_000n);
    for (const text of ["0.000004", "3000.000005"])
      expect(typeof nanoPerToken(text), text).toBe("string");
  });

  test("a model that inherits a price follows its changes", () => {
    const later = model("opus-4.9", { price: "{ inherit: opus-4.6 }" });
    for (const [input, nano] of [
      ["3.50", 700_000n],
      ["4.00", 800_000n],
    ] as const) {
      // The model that states the price may come after the one that inherits it.
      const { models } = readCatalogFile(
        file(later + model("opus-4.6", { price: `{ input: ${input}, output: 17.50 }` })),
      );
      expect(models[0]?.price).toEqual(models[1]?.price);
      expect(models[0]?.price.input).toBe(nano);
    }
  });

  test("a price is inherited only from a model that states it", () => {
    const inherits = (from: string) => ({ price: `{ inherit: ${from} }` });
    expect(
      problemsOf(
        file(
          model("a", inherits("b")) + model("b", inherits("a")) + model("c", inherits("nobody")),
        ),
      ),
    ).toEqual([
      "models[0].price.inherit: b inherits its own price; name the model that states it",
      "models[1].price.inherit: a inherits its own price; name the model that states it",
      "models[2].price.inherit: there is no model nobody",
    ]);
  });
});

describe("a wrong file", () => {
  test("reports all problems at once, unknown members with the nearest known name", () => {
    const providers =
      "providers: { sim: { kind: simulated, tokn_ms: 5 }, real: { kind: anthropic, idle_ms: soon } }";
    const text = file(
      model("m", { routes: "[[{ provider: sin }], []]", more: "    colour: red\n" }),
      `${providers}\nalias: { x: y }`,
    );
    expect(problemsOf(text)).toEqual([
      "providers.sim.tokn_ms: is not a known member; did you mean token_ms?",
      "providers.real.base_url: is required",
      "providers.real.idle_ms: must be a whole number from 1 to 86400000, not soon",
      "models[0].routes[1]: must be a list, and not empty",
      "models[0].colour: is not a known member",
      "alias: is not a known member; did you mean aliases?",
      "models[0].routes: there is no provider sin; did you mean sim?",
    ]);
  });

  const cases: { name: string; text: string; message: string }[] = [
    { name: "an empty file", text: "", message: "the file: must be a mapping" },
    { name: "a list", text: "- a", message: "the file: must be a mapping" },
    { name: "broken YAML", text: "models: [", message: "" },
    {
      name: "a member given twice",
      text: `tier_fallback: true\ntier_fallback: false\n`,
      message: "Map keys must be unique",
    },
    {
      name: "a flag that is neither true nor false",
      text: file(model("m"), "tier_fallback: yes\nproviders: { sim: { kind: simulated } }"),
      message: "tier_fallback: must be one of true, false, not yes",
    },
    {
      name: "an unknown kind of thinking",
      text: file(model("m").replace("adaptive", "deeply")),
      message: "models[0].thinking: must be one of adaptive, budget, none, not deeply",
    },
    {
      name: "a model given twice",
      text: file(model("m") + model("m")),
      message: "models[1].id: there are two models m",
    },
    {
      name: "an alias that hides a model",
      text: file(model("m"), "aliases: { m: m }\nproviders: { sim: { kind: simulated } }"),
      message: "aliases.m: there is a model with this id",
    },
    {
      name: "an alias of nothing",
      text: file(
        model("opus-1"),
        "aliases: { o: opus-2 }\nproviders: { sim: { kind: simulated } }",
      ),
      message: "aliases.o: there is no model opus-2; did you mean opus-1?",
    },
    {
      name: "an unknown kind of provider",
      text: file(model("m"), "providers: { sim: { kind: magic } }"),
      message:
        "providers.sim.kind: must be one of simulated, anthropic, openai, bedrock, vertex, azure, not magic",
    },
    ...[
      "anthropic, cache_marks: true",
      "anthropic, max_tokens_name: max_completion_tokens",
      "anthropic, api: responses",
      "openai, api: responses, cache_marks: true",
    ].map((members) => ({
      name: `a member of another API than that of the provider (${members})`,
      text: file(model("m"), `providers: { sim: { kind: ${members}, base_url: http://h } }`),
      message: `providers.sim.${/(\w+): \w+$/.exec(members)?.[1]}: is not a known member`,
    })),
    {
      name: "a base URL without a scheme",
      text: file(model("m"), "providers: { sim: { kind: openai, base_url: localhost } }"),
      message: "providers.sim.base_url: must be a URL of http or https",
    },
    {
      name: "a credential in a base URL",
      text: file(
        model("m"),
        "providers: { sim: { kind: openai, base_url: 'https://me:secret@host/' } }",
      ),
      message: "providers.sim.base_url: must have no credentials, query or fragment",
    },
    {
      name: "a header that belongs to the connection",
      text: file(
        model("m"),
        "providers: { sim: { kind: openai, base_url: http://h, headers: { Host: x } } }",
      ),
      message: "providers.sim.headers.Host: is not a header that can be set",
    },
    {
      name: "a time in words",
      text: file(model("m").replace("2026-02-05T00:00:00Z", "last week")),
      message: "models[0].created_at: must be a time such as 2026-02-05T00:00:00Z, not last week",
    },
    {
      name: "a member that every JavaScript object inherits",
      text: file(
        model("m"),
        "constructor: 1\n__proto__: { a: b }\nproviders: { sim: { kind: simulated } }",
      ),
      message: "constructor: is not a known member",
    },
  ];
  for (const { name, text, message } of cases) {
    test(`is rejected: ${name}`, () => {
      const problems = problemsOf(text);
      expect(problems).not.toEqual([]);
      expect(problems.join("\n")).toContain(message);
    });
  }

  test("of 10,000 problems lists 200, and counts the others", () => {
    const many = Array.from({ length: 10_000 }, (_, index) => `unknown_${index}: x`).join("\n");
    const problems = problemsOf(`${file(model("m"))}${many}\n`);
    expect(problems).toHaveLength(201);
    expect(problems[0]).toBe("unknown_0: is not a known member");
    expect(problems[200]).toBe("and 9800 more problems");
  });

  test("of a megabyte is read, and one that repeats itself without end is not", () => {
    const more = `    # ${"a long comment ".repeat(170)}\n`;
    const big = file(
      Array.from({ length: 400 }, (_, index) =>
        model(`m-${index}-${"x".repeat(100)}`, { more }),
      ).join(""),
    );
    expect(big.length).toBeGreaterThan(1_000_000);
    expect(readCatalogFile(big).models).toHaveLength(400);
    const lists = Array.from(
      { length: 9 },
      (_, n) => `a${n + 1}: &a${n + 1} [${`*a${n},`.repeat(9)}]`,
    );
    expect(problemsOf(`a0: &a0 [x]\n${lists.join("\n")}`)).toEqual([
      expect.stringContaining("Excessive alias count"),
    ]);
  });

  test("suggests a name only when it is close", () => {
    expect(nearestName("tokn_ms", ["token_ms", "first_token_ms"])).toBe("token_ms");
    expect(nearestName("colour", ["id", "tier", "price"])).toBeUndefined();
  });
});

describe("providers", () => {
  const real =
    "providers: { real: { kind: anthropic, base_url: 'https://api.example.com/', credential_env: REAL_KEY, headers: { X-Team: blue } } }";

  test("a provider has a URL, a credential from the environment and time limits", () => {
    const routes = "[[{ provider: real, model: claude, weight: 3 }]]";
    const { providers, models } = readCatalogFile(file(model("m", { routes }), real));
    expect(providers.real).toEqual({
      kind: "anthropic",
      api: "chat",
      dialect: "generic",
      passMembers: [],
      baseUrl: "https://api.example.com",
      credentialEnv: "REAL_KEY",
      credentialHeader: "x-api-key",
      headers: { "x-team": "blue" },
      concurrency: 10_000,
      queue: 1_000,
      queueMs: 5_000,
      connectMs: 5_000,
      firstByteMs: 120_000,
      idleMs: 120_000,
      proxy: "env",
      totalMs: 1_800_000,
      toolStubs: false,
      traceHeaders: false,
      cacheMarks: false,
      maxTokensName: "max_tokens",
    });
    expect(models[0]?.routes).toEqual([
      [{ provider: "real", model: "claude", weight: 3, systemEntries: "forward" }],
    ]);
  });

  test("a missing credential is reported by its variable, never by its value", () => {
    const { providers } = readCatalogFile(
      file(model("m", { routes: "[[{ provider: real }]]" }), real),
    );
    expect(findMissingCredentials(providers, {})).toEqual([
      "providers.real.credential_env: the environment variable REAL_KEY holds no credential",
    ]);
    expect(findMissingCredentials(providers, { REAL_KEY: "two\nlines" })[0]).not.toContain("lines");
    expect(findMissingCredentials(providers, { REAL_KEY: "k" })).toEqual([]);
  });

  test("a credential in the place of its variable's name is not repeated", () => {
    const text = real.replace("REAL_KEY", "sk-secret");
    const routes = "[[{ provider: real }]]";
    expect(problemsOf(file(model("m", { routes }), text))).toEqual([
      "providers.real.credential_env: must be the name of an environment variable",
    ]);
  });
});

describe("check-config", () => {
  const script = fileURLToPath(new URL("../../src/cli/check-config.ts", import.meta.url));

  test("prints catalogue, prices and routes", () => {
    const printed = describeCatalog(readCatalogFile(defaultCatalog()));
    expect(printed).toMatch(
      /model-opus-4\.6 +opus +1000000 +128000 +700 +3500 +3500 +875 +1400 +70/,
    );
    expect(printed).toContain("model-haiku-4.5 1. simulated as model-haiku-4.5 (weight 1)");
    expect(execFileSync(process.execPath, [script], { encoding: "utf8" }).trim()).toBe(printed);
  });

  test("prints where a credential is from, and the way to a provider", () => {
    const describe = (members: string) =>
      describeCatalog(
        readCatalogFile(
          file(
            model("m", { routes: "[[{ provider: real, model: x }]]" }),
            `providers: { real: { kind: anthropic, base_url: "https://a.example", ${members} } }`,
          ),
        ),
      );
    expect(describe("credential_file: /run/key, proxy: { url_env: EGRESS }")).toContain(
      "; credential from /run/key in x-api-key; proxy from EGRESS; connect",
    );
    expect(describe("proxy: none, ca_file: /etc/ca.pem")).toContain(
      "; no credential; no proxy; authorities of /etc/ca.pem too; connect",
    );
  });

  test("exits with status 78 and the list of problems when the file is wrong", () => {
    const path = join(mkdtempSync(join(tmpdir(), "catalog-")), "wrong.yaml");
    writeFileSync(path, "modles: []\n");
    expect(() => execFileSync(process.execPath, [script, path], { stdio: "pipe" })).toThrow(
      expect.objectContaining({ status: 78, stderr: expect.objectContaining({}) }),
    );
  });
});
