// Where the methods of the services are served over HTTP.

import { allServices } from "../../src/contract/contract.ts";

/** The path of the method of this name, from `/gateway.` on. Throws if there is none. */
export function pathOf(method: string): string {
  const service = allServices.find(({ methods }) => methods.some(({ name }) => name === method));
  if (!service) throw new Error(`no service has a method ${method}`);
  return `/${service.typeName}/${method}`;
}
