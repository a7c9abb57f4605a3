// Vertex AI of Google, with the models of publisher anthropic.

import type { VertexSettings } from "../config/catalog.ts";
import * as native from "../formats/native/native.ts";
import { betaTables } from "./betas.ts";
import { type CloudParts, cloudMessages } from "./cloud-messages.ts";
import type { Surface } from "./surface.ts";

export function vertexSurface(settings: VertexSettings, parts: CloudParts): Surface {
  const { project, location } = settings;
  const models = `/v1/projects/${project}/locations/${location}/publishers/anthropic/models`;
  const anthropic_version = "vertex-2023-10-16";
  const headersOf = (betas: readonly string[]) =>
    betas.length === 0 ? [] : ["anthropic-beta", betas.join(",")];
  return cloudMessages(
    {
      betas: betaTables.vertex,
      write: ({ body: { model: _, ...body }, model, stream, betas }) => ({
        path: `${models}/${model}:${stream ? "streamRawPredict" : "rawPredict"}`,
        headers: headersOf(betas),
        body: { anthropic_version, ...body },
      }),
      counting: {
        write: ({ body, betas }) => ({
          path: `${models}/count-tokens:rawPredict`,
          headers: headersOf(betas),
          body: { anthropic_version, ...body },
        }),
        read: native.decodeCount,
        isMissing: ({ status }) => status === 404 || status === 405 || status === 501,
      },
      supports: (feature) =>
        feature === "structuredOutput" || feature === "strictTools" || feature === "webSearch",
    },
    settings,
    parts,
  );
}
