// The clouds in configuration files: the lines of the documents, addresses, and models of any
// vendor.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { defaultCatalog, readCatalogFile } from "../../src/config/catalog.ts";
import { describeCatalog } from "../../src/config/describe.ts";
import { createCatalog } from "../../src/inference/inference.ts";
import { readSamples, root } from "../docs/documents.ts";

/** The built-in file with the lines of a document. */
function withLines(page: string) {
  const [sample] = readSamples(page).filter(({ language }) => language === "yaml");
  const { providers, models } = parse(sample?.text ?? "");
  const file = parse(defaultCatalog());
  Object.assign(file.providers, providers);
  for (const { id, routes } of models)
    file.models.find((model: { id: string }) => model.id === id).routes = routes;
  return readCatalogFile(stringify(file));
}

test.each([
  ["docs/operating/bedrock.md", ["bedrock"]],
  ["docs/operating/vertex.md", ["vertex"]],
  ["docs/operating/azure.md", ["azure", "azure"]],
])("the lines of %s fit into the built-in file", (page, kinds) => {
  const file = withLines(page);
  const added = Object.values(file.providers).map(({ kind }) => kind);
  expect(added).toEqual(["simulated", ...kinds]);
  const shown = describeCatalog(file);
  for (const kind of kinds) expect(shown).toContain(`: ${kind} (`);
});

const bedrock = "kind: bedrock, region: eu-central-1";
const vertex = "kind: vertex, project: my-project";
const azure = "kind: azure, resource: my-resource, credential_env: KEY";
test.each([
  [bedrock, "https://bedrock-runtime.eu-central-1.amazonaws.com"],
  [`${bedrock}, endpoint: mantle`, "https://bedrock-mantle.eu-central-1.api.aws"],
  [`${bedrock}, base_url: "https://vpce.example/"`, "https://vpce.example"],
  [`${vertex}, location: global`, "https://aiplatform.googleapis.com"],
  [`${vertex}, location: eu`, "https://aiplatform.eu.rep.googleapis.com"],
  [`${vertex}, location: us-east5`, "https://us-east5-aiplatform.googleapis.com"],
  [azure, "https://my-resource.services.ai.azure.com"],
  [`${azure}, api: chat`, "https://my-resource.openai.azure.com"],
])("{ %s } is at %s", (provider, url) => {
  const file = readCatalogFile(
    `${defaultCatalog().replace(/^providers:$/m, `providers:\n  one: { ${provider} }`)}`,
  );
  expect(file.providers.one).toMatchObject({ baseUrl: url });
});

describe("models of four vendors", () => {
  const text = readFileSync(join(root, "docs/examples/four-vendors.yaml"), "utf8");
  const file = readCatalogFile(text);
  const catalog = createCatalog(file);

  test("are sold, with a tier of any name or none", () => {
    const listed = catalog.list([]).filter(({ aliasFor }) => aliasFor === "");
    expect(listed.map(({ modelId: id, tier }) => [id, tier])).toEqual([
      ["claude-opus-4.6", "opus"],
      ["gpt-5.5", "flagship"],
      ["gemini-2.5-pro", ""],
      ["deepseek-chat", "small"],
    ]);
    const described = describeCatalog(file);
    for (const part of [
      "claude-opus-4.6: cost input 4.50 output 22.50 thinking 22.50",
      "bedrock as us.anthropic.claude-opus-4-6-v1 (weight 2, cost 1.1)",
      "cache_write_1h 0.56 cache_read 0.028)",
    ])
      expect(described).toContain(part);
  });

  test("take unknown versions of the three tiers alone", () => {
    expect(catalog.find("claude-opus-9")?.model.id).toBe("claude-opus-4.6");
    for (const name of ["claude-sonnet-9", "flagship-9", "gpt-9"])
      expect(catalog.find(name)).toBeUndefined();
  });
});
