import type { CatalogueSummary, CheckAnswer, CheckedObject, CheckQuestion } from "../messages.ts";
import { ask, create, createBadge, createDefinitions, createSection } from "./elements.ts";
import { createComparison } from "./review.ts";

const pod = `apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
spec:
  containers:
    - name: web
      image: nginx:1.29
`;
const manifests = create("textarea.manifests", { spellcheck: "false", wrap: "off", "aria-label": "Manifests" }, pod);
const gutter = create("div.gutter", { "aria-hidden": "true" });
const cluster = create("select");
const user = create("input", { value: "kubernetes-admin", autocomplete: "off" });
const operations = { "": "as kubectl apply", CREATE: "CREATE", UPDATE: "UPDATE", DELETE: "DELETE" };
const options = Object.entries(operations).map(([value, name]) => create("option", { value }, name));
const operation = create("select", ...options);
const files = create("input", { type: "file", multiple: true, accept: ".yaml,.yml,.json" });
const submit = create("button", "Check");
const answers = create("div", { "aria-live": "polite" });
const fields = Object.entries({ Cluster: cluster, User: user, Operation: operation, Files: files });

/** The page on which manifests can be checked. */
export const tryPage = create(
  "div.text",
  create("h1", "Try it"),
  create(
    "form",
    { submit: (event: SubmitEvent) => check(event) },
    create("p", "Paste or drop manifests here; the answer is that of postern check."),
    create("div.editor", gutter, manifests),
    create("p.tools", ...fields.map(([label, field]) => create("label", `${label} `, field)), submit),
  ),
  answers,
);

// A check needs the name of a cluster, so the button waits for the names. If they can't be loaded, the button is enabled
// anyway: the answer to a check then says what is wrong.
submit.disabled = true;
ask<CatalogueSummary>("rules")
  .then(({ clusters }) => cluster.replaceChildren(...clusters.map((name) => create("option", name))))
  .catch(() => {})
  .finally(() => {
    submit.disabled = false;
  });

const splitLines = () => manifests.value.split("\n");
const numberLines = () => {
  gutter.textContent = Array.from(splitLines(), (_, index) => index + 1).join("\n");
};

const readFiles = async (list: FileList | null) => {
  // No more of a file is read than the server accepts in a request. The server refuses a longer file even if it is cut
  // here, because a request contains more than the text: JSON, and the name of the cluster.
  const maxRequestBytes = 1024 * 1024;
  const texts = await Promise.all(Array.from(list ?? [], (file) => file.slice(0, maxRequestBytes).text()));
  if (texts.length > 0) manifests.value = texts.join("\n---\n");
  numberLines();
};

numberLines();
manifests.addEventListener("input", numberLines);
manifests.addEventListener("scroll", () => gutter.scrollTo(0, manifests.scrollTop));
manifests.addEventListener("dragover", (event) => event.preventDefault());
manifests.addEventListener("drop", (event) => {
  // If a text is dropped instead of files, the browser inserts the text.
  if (!event.dataTransfer?.files.length) return;
  event.preventDefault();
  void readFiles(event.dataTransfer.files);
});
files.addEventListener("change", () => readFiles(files.files));

/** Sends the form's manifests to the server and shows the answer. */
const check = async (event: SubmitEvent) => {
  event.preventDefault();
  submit.disabled = true;
  answers.replaceChildren(create("p.quiet", "Checking…"));
  const [text, chosen] = [manifests.value, { cluster: cluster.value, user: user.value, operation: operation.value }];
  const question: CheckQuestion = { text, ...chosen };
  try {
    const { objects, faults, notes } = await ask<CheckAnswer>("check", question);
    answers.replaceChildren(
      ...faults.map(({ line, sentence }) => create("p.failure", createLineButton(line), ` ${sentence}`)),
      ...objects.map(createObject),
      ...notes.map((note) => create("p.quiet", note)),
    );
  } catch (error) {
    answers.replaceChildren(create("p.failure", { role: "alert" }, (error as Error).message));
  }
  submit.disabled = false;
};

/** Returns a button that selects a line of the manifests. */
const createLineButton = (line: number | undefined) => {
  if (line === undefined) return undefined;
  const select = () => {
    const lines = splitLines();
    const start = lines.slice(0, line - 1).reduce((length, text) => length + text.length + 1, 0);
    manifests.focus();
    manifests.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
    const linesAbove = 3;
    manifests.scrollTop = (line - 1 - linesAbove) * (manifests.scrollHeight / lines.length);
  };
  return create("button", { type: "button", click: select }, `line ${line}`);
};

const describeAnswer = (failure: string | undefined, allowed: boolean | undefined, changed: boolean) => {
  if (failure !== undefined) return "failed";
  if (!allowed) return "denied";
  return changed ? "changed" : "allowed";
};

/** Creates the result of the check for one object. */
const createObject = ({ kind, namespace, name, madeBy, line, ...checked }: CheckedObject) => {
  const title = `${kind} ${namespace ? `${namespace}/` : ""}${name}${madeBy ? ` of ${madeBy}` : ""} `;
  const steps = checked.hooks.map(({ hook, phase, round, outcome, why, allowed, changed, failure }) => {
    const verdict = outcome === "called" ? describeAnswer(failure, allowed, changed) : "undecided";
    const remarks = [round > 0 && "called again", why, failure].filter(Boolean).join(", ");
    return create("li", `${phase} ${hook.replace(/\.postern\.dev$/, "")} `, createBadge(verdict), ` ${remarks}`);
  });
  const denials = checked.denials.map(({ rule, message, line, suggestion }) => {
    const advice = suggestion === undefined ? "" : ` To fix it, ${suggestion}.`;
    return create("p.denied", `${rule}: ${message} `, createLineButton(line), advice);
  });
  return create(
    "article",
    create("h2", title, createBadge(checked.verdict), " ", createLineButton(line)),
    ...denials,
    ...checked.undecided.map((sentence) => create("p.undecided", `can't be decided here: ${sentence}`)),
    ...checked.warnings.map(({ rule, text }) => create("p", `warning of ${rule}: ${text}`)),
    createSection("Steps", steps.length > 0 && create("ol", ...steps)),
    createSection("Changes", ...checked.difference.map(({ lines }) => createComparison(lines))),
    createSection("Audit annotations", createDefinitions(checked.audit)),
  );
};
