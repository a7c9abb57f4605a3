import type { JSX } from "preact";
import { trouble } from "../api.ts";
import { words } from "../words.ts";
import { Icon } from "./icon.tsx";

/** A quiet line while calls find no gateway. The calls repeat themselves. */
export function TroubleLine(): JSX.Element {
  const error = trouble.value;
  return (
    <div role="status">
      {error && (
        <div class="banner">
          <Icon name="clock" />
          <p>
            {error.reason === "offline" ? words.common.offlineLine : words.common.unavailableLine}
          </p>
        </div>
      )}
    </div>
  );
}
