// The role of somebody, in a list: a choice that is made at once.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { toCallError } from "../api.ts";
import { report } from "./messages.ts";

type RoleSelectProps<Role extends string> = {
  /** For screen readers: whose role it is. */
  readonly label: string;
  readonly role: string;
  readonly roles: readonly Role[];
  readonly texts: Readonly<Record<Role, string>>;
  readonly isFixed?: boolean;
  readonly onChange: (role: Role) => Promise<void>;
};

/** The role changes when the service has changed it. */
export function RoleSelect<Role extends string>(props: RoleSelectProps<Role>): JSX.Element {
  const { label, role: shown, roles, texts, isFixed = false, onChange } = props;
  const [wanted, setWanted] = useState<Role>();
  const choose = async (role: Role) => {
    setWanted(role);
    try {
      await onChange(role);
    } finally {
      setWanted(undefined);
    }
  };
  return (
    <select
      class="small-select"
      aria-label={label}
      value={wanted ?? shown}
      disabled={wanted !== undefined || isFixed}
      onInput={(event) => {
        const role = roles.find((one) => one === event.currentTarget.value);
        if (role) choose(role).catch((thrown: unknown) => report(toCallError(thrown)));
      }}
    >
      {roles.map((role) => (
        <option key={role} value={role}>
          {texts[role]}
        </option>
      ))}
    </select>
  );
}
