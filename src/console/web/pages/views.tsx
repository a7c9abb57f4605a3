// Saved views: addresses of this page with a name, of the person or of the account.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type View, ViewsService } from "../../../../gen/gateway/people/v1/views_pb.ts";
import { call, invalidate, useCall } from "../api.ts";
import { Button } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { CheckField, Form, TextField } from "../parts/form.tsx";
import { Menu } from "../parts/menu.tsx";
import { notify } from "../parts/messages.ts";
import { address, href } from "../router.ts";
import { account, can } from "../session.ts";
import { whyWords } from "../words-why.ts";

const text = whyWords.views;
const { listViews, saveView, deleteView } = ViewsService.method;

/** The button that shows the views, and keeps the page as one. */
export function Views({ page }: { readonly page: "usage" | "requests" }): JSX.Element {
  const { accountId, role } = account.value;
  const [isSaving, setSaving] = useState(false);
  // Nobody asks for them before the menu is open.
  const [isWanted, setWanted] = useState(false);
  const { data } = useCall(listViews, isWanted ? { accountId } : undefined);
  const views = data?.views ?? [];
  const shared = views.filter(({ ofAccount }) => ofAccount);
  const own = views.filter(({ ofAccount }) => !ofAccount);
  // Operators who are no members keep none of their own.
  const maySave = role > 0 || can("owner");
  return (
    <div>
      <Menu class="button" button={text.button} onOpen={() => setWanted(true)}>
        {(close) => (
          <section class="views">
            {data && views.length === 0 && <p class="menu-part muted">{text.none}</p>}
            <List title={text.ofAccount} views={shared} mayDelete={can("owner")} close={close} />
            <List title={text.own} views={own} mayDelete close={close} />
            {maySave && (
              <button
                type="button"
                class="menu-item"
                onClick={() => {
                  close();
                  setSaving(true);
                }}
              >
                {text.save}
              </button>
            )}
          </section>
        )}
      </Menu>
      {isSaving && <SaveDialog page={page} onClose={() => setSaving(false)} />}
    </div>
  );
}

type ListProps = {
  readonly title: string;
  readonly views: readonly View[];
  readonly mayDelete: boolean;
  readonly close: () => void;
};

function List({ title, views, mayDelete, close }: ListProps): JSX.Element | null {
  const { accountId } = account.value;
  if (views.length === 0) return null;
  return (
    <section class="menu-part" aria-label={title}>
      <small class="faint">{title}</small>
      {views.map(({ viewId, name, address: to }) => (
        <div class="view-line" key={viewId}>
          <a class="menu-item" href={hrefTo(to)} title={name} dir="auto" onClick={close}>
            {name}
          </a>
          {mayDelete && (
            <Button
              kind="quiet"
              icon="close"
              label={text.remove(name)}
              onClick={async () => {
                await call(deleteView, { accountId, viewId });
                invalidate(listViews);
                notify(text.deleted(name));
              }}
            />
          )}
        </div>
      ))}
    </section>
  );
}

/** The address of a view in the account on screen. */
function hrefTo(to: string): string {
  const [page = "", query] = to.split("?");
  return query === undefined ? href(page) : `${href(page)}?${query}`;
}

type SaveProps = { readonly page: string; readonly onClose: () => void };

function SaveDialog({ page, onClose }: SaveProps): JSX.Element {
  const { accountId, role } = account.value;
  const [name, setName] = useState("");
  // Of an operator who is no member.
  const isOutsider = role === 0;
  const [ofAccount, setOfAccount] = useState(isOutsider);
  const query = new URLSearchParams(address.value.search).toString();
  const save = async () => {
    const view = { accountId, name: name.trim(), ofAccount };
    await call(saveView, { ...view, address: query === "" ? page : `${page}?${query}` });
    invalidate(listViews);
    notify(text.saved(view.name));
    onClose();
  };
  return (
    <Dialog title={text.title} onClose={onClose}>
      <p>{text.about}</p>
      <Form submit={text.save} onSubmit={save} onCancel={onClose} fields={["name"]}>
        <TextField name="name" label={text.name} value={name} onInput={setName} isFirst />
        {can("owner") && !isOutsider && (
          <CheckField
            name="of_account"
            label={text.shared}
            checked={ofAccount}
            onInput={setOfAccount}
          />
        )}
      </Form>
    </Dialog>
  );
}
