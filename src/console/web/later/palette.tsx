// The palette: one field that leads to every page and to whatever the service finds, and does what
// is done most. It is worked by the keyboard alone, or by touch. Loaded when it is first opened.

import type { JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { longest } from "../../../../gen/form-limits.ts";
import {
  OperationsService,
  type SearchHit,
  SearchHitKind,
  type SearchResponse,
} from "../../../../gen/gateway/operations/v1/operations_pb.ts";
import { type CallError, call, toCallError } from "../api.ts";
import { useOperatorPages } from "../operators.tsx";
import { overlay } from "../overlay.ts";
import { pages } from "../pages.ts";
import { Dialog } from "../parts/dialog.tsx";
import { textOf } from "../parts/enum-names.ts";
import { Icon, type IconName } from "../parts/icon.tsx";
import { go, hrefOf, type PageEntry, segments } from "../router.ts";
import { can, canBuy, isOperator, operatorPart, preferredAccount } from "../session.ts";
import { setTheme } from "../theme.ts";
import { words } from "../words.ts";
import { paletteWords as text } from "../words-palette.ts";

/** What a person chooses. */
type Option = {
  readonly id: string;
  readonly icon: IconName;
  readonly label: string;
  /** Further words by which people look for it. */
  readonly also?: string;
  /** Behind the label, and smaller. */
  readonly detail?: string;
  readonly run: () => void;
};

type Group = { readonly label: string; readonly options: readonly Option[] };

/** So long nobody types before the service is asked. */
const restMs = 120;
/** As long a text as the service takes. */

type PaletteProps = {
  /** What was typed before it stood there. */
  readonly typed: string | undefined;
  readonly onClose: () => void;
};

export function Palette({ typed: before = "", onClose }: PaletteProps): JSX.Element {
  const id = useId();
  const [typed, setTyped] = useState(before);
  const [chosen, setChosen] = useState(0);
  const query = typed.trim();
  const accountId = accountInSight();
  const { answer, error, isAsking } = useSearch(query, accountId);
  const operators = useOperatorPages(isOperator());
  const groups = groupsOf({ query, accountId, answer, operators, onClose });
  const options = groups.flatMap((group) => group.options);
  const active = options[Math.min(chosen, options.length - 1)];
  // Who presses Enter before the answer is there means what will be first.
  const goesOn = useRef(false);
  useEffect(() => {
    if (isAsking || !goesOn.current) return;
    goesOn.current = false;
    options[0]?.run();
  }, [isAsking]);
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [active?.id]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const count = options.length;
      if (count > 0) setChosen((Math.min(chosen, count - 1) + step + count) % count);
    }
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (active) active.run();
    else goesOn.current = isAsking;
  };
  const field = operators ? text.fieldOfOperators : text.field;
  return (
    <Dialog title={text.title} onClose={onClose} wide keepsNothing>
      <div class="search palette-field">
        <Icon name="search" />
        <input
          role="combobox"
          data-autofocus
          aria-label={field}
          placeholder={field}
          aria-expanded="true"
          aria-controls={`${id}-list`}
          aria-activedescendant={active && `${id}-${active.id}`}
          aria-autocomplete="list"
          maxLength={longest["SearchRequest.query"]}
          value={typed}
          spellcheck={false}
          autocomplete="off"
          onKeyDown={onKeyDown}
          onInput={(event) => {
            goesOn.current = false;
            setTyped(event.currentTarget.value);
            setChosen(0);
          }}
        />
      </div>
      <div ref={list} id={`${id}-list`} class="palette" role="listbox" aria-label={text.results}>
        {groups.map(({ label, options: own }) => (
          // biome-ignore lint/a11y/useSemanticElements: a fieldset cannot be in a list box.
          <div key={label} role="group" aria-label={label}>
            <p class="note" aria-hidden="true">
              {label}
            </p>
            {own.map((option) => (
              // biome-ignore lint/a11y/useFocusableInteractive: the field keeps the focus.
              // biome-ignore lint/a11y/useKeyWithClickEvents: the field has the keys.
              <div
                key={option.id}
                id={`${id}-${option.id}`}
                role="option"
                aria-selected={option === active}
                onClick={option.run}
              >
                <Icon name={option.icon} />
                <span class="palette-label" title={option.label}>
                  <bdi>{option.label}</bdi>
                </span>
                {option.detail && (
                  <small title={option.detail}>
                    <bdi>{option.detail}</bdi>
                  </small>
                )}
              </div>
            ))}
          </div>
        ))}
      </div>
      <div class="spread faint">
        <span role="status">{statusOf(query, { answer, error, isAsking }, options.length)}</span>
        <span class="of-wide">{text.keys}</span>
      </div>
    </Dialog>
  );
}

function statusOf(query: string, { answer, error, isAsking }: Searched, count: number): string {
  if (error) return text.notSearched(error.message);
  if (query === "") return "";
  if (isAsking) return text.searching;
  if (count === 0) return text.none;
  return answer?.incomplete ? text.more : text.counted(count);
}

/** The account that pages of this address are about. On pages of operators: none. */
function accountInSight(): string | undefined {
  const [first = ""] = segments();
  return first === operatorPart ? undefined : first || preferredAccount();
}

type Searched = {
  readonly answer: SearchResponse | undefined;
  readonly error: CallError | undefined;
  readonly isAsking: boolean;
};

const nothing = { answer: undefined, error: undefined };

/** What the service finds. The text may be a secret: nothing keeps it. */
function useSearch(query: string, accountId: string | undefined): Searched {
  const [found, setFound] = useState<Omit<Searched, "isAsking"> & { readonly query: string }>();
  useEffect(() => {
    setFound(undefined);
    if (query === "") return;
    const stopped = new AbortController();
    const timer = setTimeout(() => {
      const where = accountId === undefined ? { allAccounts: true } : { accountId };
      const settings = { signal: stopped.signal, isByItself: true };
      call(OperationsService.method.search, { query, ...where }, settings).then(
        (answer) => !stopped.signal.aborted && setFound({ ...nothing, query, answer }),
        (thrown: unknown) =>
          !stopped.signal.aborted && setFound({ ...nothing, query, error: toCallError(thrown) }),
      );
    }, restMs);
    return () => {
      clearTimeout(timer);
      stopped.abort();
    };
  }, [query, accountId]);
  // Between a key and its effect, what was found is of the text before.
  if (found?.query === query) return { ...found, isAsking: false };
  return { ...nothing, isAsking: query !== "" };
}

type Sources = {
  readonly query: string;
  readonly accountId: string | undefined;
  readonly answer: SearchResponse | undefined;
  readonly operators: ReturnType<typeof useOperatorPages>;
  readonly onClose: () => void;
};

function groupsOf({ query, accountId, answer, operators, onClose }: Sources): Group[] {
  const to = (href: string) => () => {
    onClose();
    go(href);
  };
  const small = query.toLowerCase().split(/\s+/);
  const isNamed = ({ label, also = "" }: Option) =>
    small.every((word) => `${label} ${also}`.toLowerCase().includes(word));
  const pageOption = (account: string, { path, nav }: Pick<PageEntry, "path" | "nav">): Option[] =>
    nav
      ? [
          {
            id: `page-${account}-${path}`,
            icon: nav.icon,
            label: nav.label,
            ...(account === operatorPart && { detail: text.operators }),
            run: to(hrefOf(account, path)),
          },
        ]
      : [];
  const own = accountId ?? preferredAccount();
  const shown = pages.filter(({ isShown }) => !isShown || isShown());
  const places = [
    ...(own === undefined ? [] : shown.flatMap((page) => pageOption(own, page))),
    // The bell leads to it, and no link of the column.
    ...(own === undefined
      ? []
      : pageOption(own, { path: "alerts", nav: { label: words.shell.alerts, icon: "bell" } })),
    ...(operators?.pages ?? []).flatMap((page) => pageOption(operatorPart, page)),
  ];
  const hits = (answer?.hits ?? []).flatMap((hit): Option[] => {
    const href = hrefOfHit(hit, own) ?? operators?.hrefOfHit(hit);
    const kind = textOf(SearchHitKind, text.kinds, hit.kind);
    const isOther = hit.accountId !== "" && hit.accountId !== own;
    const detail = [hit.hint, isOther ? hit.accountName : "", kind].filter((part) => part !== "");
    if (href === undefined) return [];
    return [
      {
        id: `hit-${hit.kind}-${hit.id}-${hit.accountId}`.replace(/\s/g, "_"),
        icon: iconOf(hit.kind),
        label: hit.title || hit.id,
        detail: detail.join(" · "),
        run: to(href),
      },
    ];
  });
  const everything: Option[] =
    operators && query !== ""
      ? [
          {
            id: "everything",
            icon: "search",
            label: text.everything(operators.withoutSecret(query)),
            run: () => {
              onClose();
              operators.openSearch(query);
            },
          },
        ]
      : [];
  return [
    { label: text.go, options: places.filter(isNamed) },
    { label: text.found, options: hits },
    { label: text.act, options: [...actsOf(own, onClose, to).filter(isNamed), ...everything] },
  ].filter(({ options }) => options.length > 0);
}

function actsOf(
  own: string | undefined,
  onClose: () => void,
  to: (href: string) => () => void,
): Option[] {
  const { acts } = text;
  const look = (theme: "light" | "dark" | "system"): Option => ({
    id: `look-${theme}`,
    icon: { light: "sun", dark: "moon", system: "screen" }[theme] as IconName,
    label: acts[theme],
    also: text.also.look,
    run: () => {
      onClose();
      setTheme(theme);
    },
  });
  const isMember = own !== undefined && can("member");
  const act = (id: string, icon: IconName, label: string, href: string): Option => ({
    ...{ id, icon, label },
    run: to(href),
  });
  return [
    ...(isMember ? [act("key", "plus", acts.createKey, hrefOf(own, "keys", { new: "1" }))] : []),
    // On pages of operators no account is on screen, and nothing is bought.
    ...(own !== undefined && canBuy()
      ? [act("buy", "credits", acts.buy, hrefOf(own, "credits/buy"))]
      : []),
    ...(own !== undefined && can("owner")
      ? [act("invite", "person", acts.invite, hrefOf(own, "members"))]
      : []),
    look("light"),
    look("dark"),
    look("system"),
    {
      id: "glossary",
      icon: "help",
      label: acts.glossary,
      also: text.also.glossary,
      run: () => {
        overlay.value = { kind: "glossary" };
      },
    },
    // No page of the console: the browser loads it.
    {
      ...{ id: "docs", icon: "help", label: acts.docs, also: text.also.docs },
      run: () => location.assign("/docs"),
    },
  ];
}

/** The page of a hit in an account. Undefined: only operators have one. */
function hrefOfHit({ kind, id, accountId }: SearchHit, own: string | undefined) {
  if (own === undefined) return undefined;
  if (kind === SearchHitKind.MODEL) return hrefOf(own, "models", { q: id });
  if (accountId !== own) return undefined;
  switch (kind) {
    case SearchHitKind.KEY:
      return hrefOf(own, `keys/${id}`);
    case SearchHitKind.REQUEST:
      return hrefOf(own, `requests/${id}`);
    case SearchHitKind.ORDER:
      return hrefOf(own, `credits/orders/${id}`);
    case SearchHitKind.DOCUMENT:
      return hrefOf(own, `credits/orders/${id}/receipt`);
    case SearchHitKind.PERSON:
      return hrefOf(own, `members/${id}`);
    default:
      return undefined;
  }
}

function iconOf(kind: SearchHitKind): IconName {
  switch (kind) {
    case SearchHitKind.KEY:
    case SearchHitKind.MANAGEMENT_KEY:
      return "keys";
    case SearchHitKind.PERSON:
      return "person";
    case SearchHitKind.ACCOUNT:
      return "members";
    case SearchHitKind.REQUEST:
    case SearchHitKind.REFUSAL:
      return "requests";
    case SearchHitKind.MODEL:
      return "models";
    default:
      return "credits";
  }
}
