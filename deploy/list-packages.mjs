// Prints the packages that running needs, as CycloneDX: the list of npm without those for
// development. (`npm sbom --omit=dev` of npm 11 also drops packages that both need.)

import { execFileSync } from "node:child_process";

const all = execFileSync("npm", ["sbom", "--package-lock-only", "--sbom-format=cyclonedx"], {
  encoding: "utf8",
  maxBuffer: 2 ** 28,
});
const list = JSON.parse(all);
const isForDevelopment = ({ properties = [] }) =>
  properties.some(({ name }) => name === "cdx:npm:package:development");
list.components = list.components.filter((one) => !isForDevelopment(one));
const kept = new Set(list.components.map((one) => one["bom-ref"]));
kept.add(list.metadata.component["bom-ref"]);
list.dependencies = list.dependencies
  .filter(({ ref }) => kept.has(ref))
  .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: dependsOn.filter((one) => kept.has(one)) }));
console.log(JSON.stringify(list, null, 2));
