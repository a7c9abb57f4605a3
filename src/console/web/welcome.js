// The page on which a link is redeemed, and on which people sign in. The secret of a link is in the
// fragment of the address: it is taken out of the address before anything else.

const token = location.hash.slice(1);
const oidcOutcome = new URLSearchParams(location.search).get("oidc") ?? "";
if (token !== "" || oidcOutcome !== "") history.replaceState(null, "", location.pathname);

const part = (id) => document.getElementById(id);
const service = "/gateway.people.v1.PeopleService/";

/** Calls a method. Throws an Error with the message of the answer. */
async function call(method, request = {}) {
  const response = await fetch(service + method, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
  });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  throw Object.assign(new Error(answer.message ?? `The gateway answered ${response.status}.`), {
    status: response.status,
  });
}

/** Runs what a button does: one thing at a time, and what went wrong in a sentence. */
function onPress(element, event, work) {
  element.addEventListener(event, async (pressed) => {
    pressed.preventDefault();
    const buttons = document.querySelectorAll("button");
    for (const button of buttons) button.disabled = true;
    part("problem").textContent = "";
    try {
      await work();
    } catch (error) {
      part("problem").textContent =
        error.name === "NotAllowedError"
          ? "The passkey was not used. Try again, or use a password."
          : error.message;
    }
    for (const button of buttons) button.disabled = false;
  });
}

function show({ title, lead, form = false, signedIn = false }) {
  part("title").textContent = title;
  part("lead").textContent = lead;
  part("form").hidden = !form;
  part("signed-in").hidden = !signedIn;
}

const roles = {
  ACCOUNT_ROLE_OWNER: "owner",
  ACCOUNT_ROLE_MEMBER: "member",
  ACCOUNT_ROLE_VIEWER: "viewer",
};

async function showSession() {
  const { person, accounts = [], operator } = await call("GetSession");
  show({
    title: "You are signed in",
    lead: "The console follows. Until then, this page shows who you are.",
    signedIn: true,
  });
  const facts = [
    ["Login", person.login],
    ...(person.name ? [["Name", person.name]] : []),
    ...(operator ? [["Operator", operator === "OPERATOR_ROLE_ADMIN" ? "admin" : "support"]] : []),
    ...accounts.map(({ name, accountId, role }) => [name || accountId, roles[role] ?? "member"]),
  ];
  part("facts").replaceChildren(
    ...facts.flatMap(([term, text]) => {
      const [name, value] = [document.createElement("dt"), document.createElement("dd")];
      name.textContent = term;
      value.textContent = text;
      return [name, value];
    }),
  );
}

// Why a sign-in at a company did not succeed. Others get the sentence of sign_in_failed.
const oidcProblems = {
  sign_in_failed: "The sign-in did not succeed, or took too long. Try again.",
  sign_up_closed:
    "Nobody knows you here yet, and you cannot sign up this way. Ask for an invitation.",
  gateway_unavailable: "Your company's sign-in does not answer. Try again, or use another way.",
  auth_rate_limited: "Too many attempts from your network. Wait a moment.",
  login_taken: "This identity belongs to another person here.",
  confirm_identity: "Confirm first who you are, then try again.",
};

function showOidcProblem() {
  if (["", "signed-in", "confirmed", "added"].includes(oidcOutcome)) return;
  part("problem").textContent = oidcProblems[oidcOutcome] ?? oidcProblems.sign_in_failed;
}

/** Offers the companies at which people sign in. `linkToken`: the link to take there. */
async function showProviders(linkToken) {
  const { providers = [] } = await call("BeginSignIn");
  part("providers").replaceChildren(
    ...providers.map(({ name, title }) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `Continue with ${title || name}`;
      onPress(button, "click", async () => {
        const request = { provider: name, ...(linkToken && { linkToken }) };
        const { authorizationUrl } = await call("BeginOidc", request);
        location.assign(authorizationUrl);
      });
      return button;
    }),
  );
}

const purposes = {
  LINK_PURPOSE_OWNER: ["Set up this gateway", "This link makes you its operator, once."],
  LINK_PURPOSE_INVITATION: ["Join", "You were invited."],
  LINK_PURPOSE_RECOVERY: [
    "Sign in again",
    "Choose a new way to sign in. It replaces all earlier ones and ends all sessions.",
  ],
  LINK_PURPOSE_SIGN_UP: ["Your address is confirmed", "Choose how you will sign in."],
};

async function showLink() {
  const { link } = await call("BeginPasskey", { linkToken: token, login: "" });
  const [title, lead] = purposes[link.purpose] ?? ["Welcome", ""];
  const account = link.accountName
    ? ` You become ${roles[link.role]} of the account ${link.accountName}.`
    : "";
  show({ title, lead: lead + account, form: true });
  const isSignUp = link.purpose === "LINK_PURPOSE_SIGN_UP";
  const isPerson = link.purpose === "LINK_PURPOSE_RECOVERY";
  const isNew = !isPerson && !isSignUp;
  const method = isSignUp ? "ConfirmEmail" : "RedeemLink";
  if (!isSignUp) await showProviders(token);
  part("login").value = link.login ?? "";
  part("login").readOnly = !isNew;
  part("name-field").hidden = isPerson;
  part("passkey").textContent = "Create a passkey";
  part("other").hidden = link.needsPasskey === true;
  part("password").autocomplete = "new-password";
  part("password-hint").hidden = false;
  const person = () => ({
    token,
    ...(isNew && { login: part("login").value }),
    ...(!isPerson && { name: part("name").value }),
  });
  const checkLogin = () => {
    if (isNew && part("login").value.trim() === "") throw new Error("Choose a login first.");
  };
  onPress(part("passkey"), "click", async () => {
    checkLogin();
    const login = isNew ? part("login").value : "";
    const { passkeyOptionsJson } = await call("BeginPasskey", { linkToken: token, login });
    const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(
      JSON.parse(passkeyOptionsJson),
    );
    const created = await navigator.credentials.create({ publicKey });
    await call(method, {
      ...person(),
      passkeyAnswerJson: JSON.stringify(created.toJSON()),
    });
    await showSession();
  });
  onPress(part("form"), "submit", async () => {
    checkLogin();
    await call(method, { ...person(), password: part("password").value });
    part("password").value = "";
    await showSession();
  });
}

async function showSignIn() {
  show({ title: "Sign in", lead: "With a passkey you need no login.", form: true });
  showOidcProblem();
  part("login-field").hidden = true;
  part("other").addEventListener("toggle", () => {
    part("login-field").hidden = !part("other").open;
  });
  onPress(part("passkey"), "click", async () => {
    const { passkeyOptionsJson } = await call("BeginSignIn");
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(
      JSON.parse(passkeyOptionsJson),
    );
    const answer = await navigator.credentials.get({ publicKey });
    await call("SignInWithPasskey", { answerJson: JSON.stringify(answer.toJSON()) });
    await showSession();
  });
  onPress(part("form"), "submit", async () => {
    await call("SignInWithPassword", {
      login: part("login").value,
      password: part("password").value,
    });
    part("password").value = "";
    await showSession();
  });
  await showProviders();
}

onPress(part("sign-out"), "click", async () => {
  await call("SignOut");
  location.reload();
});

try {
  if (token !== "") await showLink();
  else {
    await showSession();
    showOidcProblem();
  }
} catch (error) {
  if (token === "" && error.status === 401) await showSignIn();
  else {
    show({ title: "This did not work", lead: "" });
    part("problem").textContent = error.message;
  }
}
