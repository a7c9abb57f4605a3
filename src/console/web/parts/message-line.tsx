import type { JSX } from "preact";
import { words } from "../words.ts";
import { Button, Copy } from "./button.tsx";
import { Icon } from "./icon.tsx";
import { message, silence } from "./messages.ts";

/** The message at the foot of the page. */
export function Messages(): JSX.Element {
  const shown = message.value;
  return (
    <div class="messages stack" aria-live="polite">
      {shown && (
        <p class={shown.isProblem ? "message bad" : "message"}>
          <Icon name={shown.isProblem ? "warning" : "done"} />
          <span>{shown.text}</span>
          {shown.requestId && (
            <Copy text={shown.requestId} label={words.common.copyRequestId} kind="quiet" />
          )}
          {shown.undo && <Button onClick={shown.undo}>{words.common.undo}</Button>}
          <button type="button" class="button quiet" onClick={silence}>
            {words.common.close}
          </button>
        </p>
      )}
    </div>
  );
}
