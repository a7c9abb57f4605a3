// What to paste into a tool: its blocks, and what goes wrong with it.

import type { JSX } from "preact";
import type { Place, Tool } from "../tools.ts";
import { words } from "../words.ts";
import { type Needed, useNeeded } from "./later.tsx";
import { Snippet } from "./small.tsx";

type ToolList = typeof import("../tools.ts");

/** The list of tools, which is a file of its own. */
export function useTools(): Needed<ToolList> {
  return useNeeded(() => import("../tools.ts"));
}

type ToolBlocksProps = {
  readonly list: ToolList;
  readonly tool: Tool;
  readonly place: Place;
  readonly isStream?: boolean;
  readonly onCopied?: (() => void) | undefined;
};

export function ToolBlocks(props: ToolBlocksProps): JSX.Element {
  const { list, tool, place, isStream = false, onCopied } = props;
  return (
    <>
      {list.blocksOf(tool, place, isStream).map(({ path, text }) => (
        <div class="stack" key={path ?? text}>
          {path && <p class="hint">{words.snippets.file(path)}</p>}
          <Snippet text={text} {...(onCopied && { onCopied })} />
        </div>
      ))}
      {tool.advice && (
        <p class="hint">
          <b>{words.snippets.wrong}</b> {list.fillIn(tool.advice, place)}
        </p>
      )}
    </>
  );
}
