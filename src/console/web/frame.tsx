// The frame of every page for people who are signed in: the column, and the page.

import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ProfileService } from "../../../gen/gateway/people/v1/profile_pb.ts";
import { call } from "./api.ts";
import { Segments } from "./parts/choices.tsx";
import { Brand, Icon } from "./parts/icon.tsx";
import { Menu } from "./parts/menu.tsx";
import { TroubleLine } from "./parts/trouble.tsx";
import { segments } from "./router.ts";
import { isOperator, session } from "./session.ts";
import { FindButton, Overlay } from "./shortcuts.tsx";
import { setTheme, type Theme, theme } from "./theme.ts";
import { words } from "./words.ts";

type FrameProps = {
  /** Where the name of the product leads. */
  readonly home: string;
  /** Where people set how they sign in. Undefined: nowhere. */
  readonly settings: string | undefined;
  readonly column: ComponentChildren;
  /** At the top. */
  readonly bell?: ComponentChildren;
  /** At the end of the column, above who is here. */
  readonly foot?: ComponentChildren;
  /** Above every page. */
  readonly banner?: ComponentChildren;
  readonly children: ComponentChildren;
};

export function Frame(props: FrameProps): JSX.Element {
  const { home, settings, column, bell, foot, banner, children } = props;
  const content = useRef<HTMLElement>(null);
  const path = segments().join("/");
  const isFirst = useRef(true);
  useEffect(() => {
    // A new page: screen readers begin at its start.
    if (!isFirst.current) content.current?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [path]);
  return (
    <div class="frame columns">
      <a class="skip" href="#content">
        {words.common.skip}
      </a>
      <div class="column">
        <a class="brand" href={home} aria-label={words.common.product}>
          <Brand />
          <span>{words.common.product}</span>
        </a>
        <FindButton />
        {column}
        {bell}
        <div class="column-foot stack">
          {foot}
          <Me settings={settings} />
        </div>
      </div>
      <div class="page">
        <TroubleLine />
        {banner}
        <main id="content" ref={content} tabIndex={-1}>
          {children}
        </main>
      </div>
      <Overlay />
    </div>
  );
}

/** The row of links with the current one in sight: on a phone it scrolls sideways. */
export function useCurrentInSight(section: string | undefined): RefObject<HTMLElement | null> {
  const row = useRef<HTMLElement>(null);
  useEffect(() => {
    const current = row.current?.querySelector("[aria-current]");
    current?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [section]);
  return row;
}

/** What stands there until it is known who is here, as in `first-frame.html`. */
export function FirstFrame(): JSX.Element {
  return (
    <div class="frame columns">
      <div class="column">
        <span class="brand">
          <Brand />
          <span>{words.common.product}</span>
        </span>
      </div>
      <div class="page" />
    </div>
  );
}

const themes = ["system", "light", "dark"] as const satisfies readonly Theme[];

/** Who is here. `settings`: where the ways to sign in are. Undefined: the person has no account. */
function Me({ settings }: { readonly settings: string | undefined }): JSX.Element {
  const { person, cells } = session.value;
  const login = person?.login ?? "";
  const signOut = async () => {
    await call(ProfileService.method.signOut, {}, { asks: false }).catch(() => undefined);
    // Everything that is in memory goes.
    location.assign("/console/sign-in");
  };
  return (
    <Menu
      class="me"
      button={
        <>
          <Icon name="person" />
          <span dir="auto">{person?.name || login}</span>
          <b class="visually-hidden">{words.shell.me}</b>
        </>
      }
    >
      {(close) => (
        <>
          <div class="menu-part">
            <div dir="auto">{person?.name}</div>
            <div class="faint">{login}</div>
          </div>
          <div class="menu-part">
            <Segments
              label={words.shell.theme}
              value={theme.value}
              onInput={setTheme}
              options={themes.map((value) => ({ value, label: words.shell.themes[value] }))}
            />
          </div>
          {cells.map(
            ({ cell, current, signedIn }) =>
              !current &&
              (signedIn || isOperator()) && (
                <a key={cell} class="menu-item" href={`/console/cell/${cell}`}>
                  <Icon name="switch" />
                  {words.shell.cell(cell)}
                </a>
              ),
          )}
          {settings && (
            <a class="menu-item" href={settings} onClick={close}>
              <Icon name="settings" />
              {words.shell.settings}
            </a>
          )}
          <button type="button" class="menu-item" onClick={() => void signOut()}>
            <Icon name="back" />
            {words.shell.signOut}
          </button>
        </>
      )}
    </Menu>
  );
}
