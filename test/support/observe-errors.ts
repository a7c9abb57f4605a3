// Compares the errors that methods throw with those that their comments name. Looks at them where
// each service gets its interceptor, behind the checks that all methods share, so that what is left
// is the method's own.

import type { DescMethod } from "@bufbuild/protobuf";
import { toApiError } from "../../src/base/errors.ts";
import type * as interceptor from "../../src/contract/interceptor.ts";

/** Methods and reasons: `gateway.keys.v1.KeysService.GetKey NOT_FOUND`. */
const seen = new Set<string>();
const scripted = new WeakSet<object>();

/** Marks an implementation whose errors its test has made up. */
export function isScripted<T extends object>(implementation: T): T {
  scripted.add(implementation);
  return implementation;
}

function look({ parent, name }: DescMethod, thrown: unknown): void {
  seen.add(`${parent.typeName}.${name} ${toApiError(thrown).reason.toUpperCase()}`);
}

/** The same function, whose errors are looked at. */
function observed(desc: DescMethod, run: (...args: unknown[]) => unknown) {
  return (...args: unknown[]): unknown => {
    const answer = run(...args);
    if (answer instanceof Promise) {
      answer.catch((error: unknown) => look(desc, error));
      return answer;
    }
    return answer instanceof Object && Symbol.asyncIterator in answer
      ? observedStream(desc, answer)
      : answer;
  };
}

async function* observedStream(desc: DescMethod, stream: object): AsyncGenerator<unknown> {
  try {
    yield* stream as AsyncIterable<unknown>;
  } catch (error) {
    look(desc, error);
    throw error;
  }
}

/** The module of the interceptor, whose services are looked at. */
export function lookingAt(real: typeof interceptor): typeof interceptor {
  const intercept: typeof real.intercept = (service, implementation, parts) => {
    if (scripted.has(implementation)) return real.intercept(service, implementation, parts);
    const methods = new Map(service.methods.map((desc) => [desc.localName, desc]));
    const looking = new Proxy(implementation, {
      get(target, property) {
        const run: unknown = Reflect.get(target, property);
        const desc = typeof property === "string" ? methods.get(property) : undefined;
        return desc && typeof run === "function" ? observed(desc, run.bind(target)) : run;
      },
    });
    return real.intercept(service, looking, parts);
  };
  return { ...real, intercept };
}

/** Throws for errors that were seen and that no comment names. */
export async function throwUndocumented(): Promise<void> {
  if (seen.size === 0) return;
  // Only when it is needed: most files see no errors.
  const { errorsOf, errorsOfAll } = await import("./method-errors.ts");
  const wrong = [...seen].filter((pair) => {
    const [method = "", reason = ""] = pair.split(" ");
    return !errorsOfAll.has(reason) && !errorsOf(method).has(reason);
  });
  seen.clear();
  if (wrong.length > 0)
    throw new Error(`comments of methods do not name these errors:\n${wrong.join("\n")}`);
}
