import { builtIn } from "#lib/chain/conditions.ts";
import { type Hook, type Hooks, hooksIn } from "#lib/chain/hooks.ts";
import type { Called, Cel, Sent } from "#lib/chain/trace.ts";
import type { KubernetesObject, Operation, UserInfo } from "#lib/review.ts";
import { Complaint } from "../complaint.ts";
import type { Cluster } from "../config.ts";
import { askingRules } from "../connections.ts";
import type { Listed } from "../registry.ts";
import { namespacesBorn } from "../written.ts";
import { fill } from "./defaults/filled.ts";
import { type Fault, faultText, type Manifest, nameOf } from "./documents.ts";
import { type Existing, openExisting } from "./existing.ts";
import { callForeign } from "./foreign.ts";
import { readInput } from "./input.ts";
import { type Judged, judgeAll, keyOf } from "./judge.ts";
import { type Kinds, kindsOf } from "./kinds.ts";
import { type Asking, isReview, received } from "./requests.ts";
import { openRules, type Rules } from "./rules.ts";

/** What is checked, against what. */
export interface Setup {
  catalogue: Listed[];
  cluster: [name: string, Cluster];
  harden: boolean;
  /** Files, folders and globs of what is checked. */
  paths: readonly string[];
  /** Of recorded reviews. */
  reviews: readonly string[];
  /** Of what exists. */
  state: readonly string[];
  /** Of what updates are made to. */
  old: readonly string[];
  /** Of somebody else's webhook configurations. */
  webhooks: readonly string[];
  /** Hosts whose webhooks may be called. */
  hosts: readonly string[];
  operation: Operation | undefined;
  user: UserInfo;
  namespace: string;
  alsoPods: boolean;
}

/** A check that is about to begin: what was read, and what comes of it as it is asked for. */
export interface Check {
  /** What can't be read. */
  faults: Fault[];
  /** What is worth saying of the whole; more may come while objects are judged. */
  notes: ReadonlySet<string>;
  judged: AsyncGenerator<Judged>;
}

/** Reads all there is to read, and gets ready to judge it. */
export const openCheck = async (setup: Setup): Promise<Check> => {
  const { paths, reviews, state, old, webhooks, cluster, catalogue, hosts } = setup;
  const input = await readInput(paths);
  const recorded = await readInput(reviews);
  const [before, present, foreign] = [
    await readAll(old, "--old"),
    await readAll(state, "--state"),
    await readAll(webhooks, "--webhooks"),
  ];
  for (const { source, line, object } of recorded.manifests.filter((one) => !isReview(one)))
    recorded.faults.push({ file: source.name, line, sentence: `is a ${object.kind}, no AdmissionReview` });
  const all = input.manifests.filter((one) => !isForAnother(one));
  const manifests = [...all, ...recorded.manifests.filter(isReview)];
  const notes = new Set([...input.notes, ...input.manifests.filter(isForAnother).map(leftOut)]);

  const everything = [...present, ...before, ...manifests].map(({ object }) => object);
  const kinds = kindsOf(everything.filter(({ kind }) => kind === "CustomResourceDefinition"));
  const faults = [...input.faults, ...recorded.faults];
  if (manifests.length + faults.length === 0)
    throw new Complaint(`there is no manifest in ${[...paths, ...reviews].join(", ")}`);
  const existing = openExisting(kinds);
  const asking: Omit<Asking, "operation"> = { user: setup.user, namespace: setup.namespace };
  for (const object of [...namespacesBorn, ...wholeOf(present, kinds, asking).values()]) place(object, kinds, existing);

  const rules = await openRules(catalogue, cluster, setup.harden, existing.world);
  for (const note of rules.notes) notes.add(note);
  const hooks = unhurried(hooksIn([...rules.configurations, ...foreign.map(({ object }) => object)]), rules);
  checkHooks(hooks, cluster[0]);
  const curious = askingRules(catalogue, cluster[1]).map(({ name }) => name);
  if (state.length === 0 && curious.length > 0)
    notes.add(
      `${curious.join(", ")} ask the cluster, of which nothing is known but these manifests; --state says what exists`,
    );
  const call = (hook: Hook, review: Sent): Promise<Called> =>
    rules.call(hook, review) ?? callForeign(hook, review, hosts);
  const cel: Cel = {
    compile: (expression) => {
      const evaluate = builtIn.compile(expression);
      if (!rules.isSparing(expression)) return evaluate;
      return (variables) => {
        const evaluated = evaluate(variables);
        return "unsaid" in evaluated ? { holds: true } : evaluated;
      };
    },
  };
  const judged = judgeAll(manifests, {
    ...{ kinds, existing, hooks, call, cel, asking: { ...asking, operation: setup.operation } },
    ...{ old: wholeOf(before, kinds, asking), alsoPods: setup.alsoPods, isWorldKnown: state.length > 0 },
    nameOf: (hook, message) => rules.nameOf(hook, message) ?? hook,
    note: (sentence) => notes.add(sentence),
  });
  return { faults, notes, judged };
};

/** How long a rule takes on this machine says nothing of how long it takes where it is deployed. */
const unhurried = ({ mutating, validating, faults }: Hooks, rules: Rules): Hooks => {
  const calm = (hook: Hook) => (rules.nameOf(hook.name) === undefined ? hook : { ...hook, timeoutSeconds: 30 });
  return { mutating: mutating.map(calm), validating: validating.map(calm), faults };
};

/** What a check stands on must be right as a whole. */
const readAll = async (paths: readonly string[], option: string): Promise<Manifest[]> => {
  const { manifests, faults } = await readInput(paths);
  if (faults.length > 0) throw new Complaint(faults.map((fault) => `${option} ${faultText(fault)}`).join("\n"));
  return manifests;
};

const checkHooks = ({ faults, mutating, validating }: Hooks, cluster: string) => {
  if (mutating.length + validating.length + faults.length === 0)
    throw new Complaint(
      `no rule is on for cluster "${cluster}"; postern.yaml says which are, and --rules names others`,
    );
  if (faults.length > 0) throw new Complaint(faults.map((fault) => `--webhooks: ${fault}`).join("\n"));
};

/** Instructions for kustomize lie among manifests, and no API server knows them. */
const isForAnother = ({ object: { apiVersion } }: Manifest) => /^kustomize\.config\.k8s\.io\//.test(String(apiVersion));

const leftOut = ({ source, object }: Manifest) =>
  `${nameOf(source.name)} is for kustomize, and left out; kustomize build prints manifests of this ${object.kind}, which - reads`;

/** Objects as an API server holds them, each under what tells it from the others. */
const wholeOf = (manifests: readonly Manifest[], kinds: Kinds, asking: Omit<Asking, "operation">) => {
  const all = manifests.flatMap(({ object }): [string, KubernetesObject][] => {
    const kind = kinds.of(String(object.apiVersion), String(object.kind));
    if (kind === undefined) return [];
    const whole = fill(received(object, kind, { ...asking, operation: "CREATE" })).object;
    return [[keyOf(kind, whole), whole]];
  });
  return new Map(all);
};

const place = (object: KubernetesObject, kinds: Kinds, existing: Existing) => {
  const kind = kinds.of(object.apiVersion ?? "", object.kind ?? "");
  if (kind !== undefined) existing.put(kind.resource, object);
};
