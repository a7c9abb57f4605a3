import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { toCallError } from "../api.ts";
import { words } from "../words.ts";
import { Icon, type IconName } from "./icon.tsx";
import { report } from "./messages.ts";

export type ButtonKind = "plain" | "main" | "danger" | "quiet";

type ButtonProps = {
  kind?: ButtonKind;
  /** While its promise runs, the button is busy. What it throws is shown at the foot. */
  onClick?: () => unknown;
  disabled?: boolean;
  type?: "button" | "submit";
  /** For screen readers, where the content does not say enough. */
  label?: string;
  icon?: IconName;
  /** The id of the popover that it opens. */
  opens?: string;
  children?: ComponentChildren;
};

export function Button(props: ButtonProps): JSX.Element {
  const { kind = "plain", onClick, disabled = false, type = "button", label, icon, opens } = props;
  const [isBusy, setBusy] = useState(false);
  const press = async () => {
    if (isBusy || !onClick) return;
    const result = onClick();
    if (!(result instanceof Promise)) return;
    setBusy(true);
    try {
      await result;
    } catch (thrown) {
      report(toCallError(thrown));
    } finally {
      setBusy(false);
    }
  };
  return (
    <button
      type={type}
      class={`button ${kind}`}
      disabled={disabled}
      aria-busy={isBusy}
      aria-label={label}
      title={label}
      popovertarget={opens}
      onClick={() => void press()}
    >
      {icon && <Icon name={icon} />}
      {props.children}
    </button>
  );
}

type LinkButtonProps = {
  href: string;
  kind?: ButtonKind;
  download?: boolean;
  icon?: IconName;
  children: ComponentChildren;
};

export function LinkButton(props: LinkButtonProps): JSX.Element {
  const { href, kind = "plain", download = false, icon, children } = props;
  return (
    <a class={`button ${kind}`} href={href} {...(download && { download: "" })}>
      {icon && <Icon name={icon} />}
      {children}
    </a>
  );
}

type CopyProps = {
  text: string;
  label?: string;
  /** Only the icon is seen. */
  isSmall?: boolean;
  kind?: ButtonKind;
  onCopied?: () => void;
};

/** Copies a text, and shows that it did. */
export function Copy(props: CopyProps): JSX.Element {
  const { text, label = words.common.copy, isSmall = false, kind = "plain", onCopied } = props;
  const [isCopied, setCopied] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    onCopied?.();
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setCopied(false), 2000);
  };
  const said = isCopied ? words.common.copied : label;
  return (
    <button
      type="button"
      class={`button copy ${isSmall ? "quiet small" : kind}`}
      data-copied={isCopied}
      aria-label={isSmall ? said : undefined}
      title={isSmall ? said : undefined}
      onClick={() => void copy().catch(() => report(words.common.copyFailed))}
    >
      <Icon name={isCopied ? "done" : "copy"} />
      {!isSmall && (
        // Both texts have a place, so that nothing moves.
        <span class="both">
          <span aria-hidden={isCopied}>{label}</span>
          <span aria-hidden={!isCopied}>{words.common.copied}</span>
        </span>
      )}
      <span class="visually-hidden" role="status">
        {isCopied ? words.common.copied : ""}
      </span>
    </button>
  );
}
