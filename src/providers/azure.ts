// Azure: Claude in Foundry over the native API, and the models of OpenAI over its two.

import type { AzureSettings } from "../config/catalog.ts";
import { betaTables } from "./betas.ts";
import { cloudFailure } from "./cloud-failures.ts";
import {
  type CloudParts,
  cloudMessages,
  countingBelow,
  type Place,
  vendorHeaders,
} from "./cloud-messages.ts";
import { openaiSurface } from "./openai.ts";
import type { Surface } from "./surface.ts";

export function azureSurface(settings: AzureSettings, parts: CloudParts): Surface {
  if (settings.api === "messages") return cloudMessages(messages, settings, parts);
  const surface = openaiSurface({ ...settings, api: settings.api }, pathsOf(settings));
  return { ...surface, failureOf: cloudFailure };
}

const path = "/anthropic/v1/messages";

const messages: Place = {
  betas: betaTables.azure,
  write: ({ body, betas }) => ({ path, headers: vendorHeaders(betas), body }),
  counting: countingBelow(path),
  // Which of the vendor's own tools it runs is not known.
  supports: (feature) =>
    feature === "structuredOutput" || feature === "strictTools" || feature === "urlSources",
};

/** Where requests go: the deployment is the model of the body, or was part of the older paths. */
function pathsOf({ apiVersion }: AzureSettings): Parameters<typeof openaiSurface>[1] {
  if (apiVersion === undefined)
    return { chat: () => "/openai/v1/chat/completions", responses: () => "/openai/v1/responses" };
  const query = `api-version=${apiVersion}`;
  return {
    chat: (model) => `/openai/deployments/${encodeURIComponent(model)}/chat/completions?${query}`,
    responses: () => `/openai/responses?${query}`,
  };
}
