import { own } from "#lib/json.ts";
import type { Resource } from "#lib/needs.ts";
import type { KubernetesObject, Operation, UserInfo } from "#lib/review.ts";
import { fill } from "../apiserver/defaults/filled.ts";
import { born } from "../apiserver/initial-objects.ts";
import { type Kinds, kindsOf } from "../apiserver/kinds/kinds.ts";
import type { Listed } from "../catalogue/registry.ts";
import { Complaint } from "../cli/complaint.ts";
import type { Cluster } from "../config/config.ts";
import { type Judged, judgeAll, keyOf } from "./evaluation/evaluate.ts";
import { type Existing, openExisting } from "./evaluation/existing-objects.ts";
import { hooked } from "./evaluation/hooked.ts";
import { missingNamespaces, remarksOn } from "./evaluation/remarks.ts";
import { type Asking, isReview, received } from "./evaluation/requests.ts";
import { openRules, type Rules } from "./evaluation/rules.ts";
import { isUnevaluated, openUnevaluated } from "./evaluation/unevaluated.ts";
import { type Fault, faultText, type Manifest, nameOf } from "./manifests/documents.ts";
import { readInput } from "./manifests/input.ts";

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
  if (setup.user.username === "") throw new Complaint("--as must name a user");
  if (!isLabel(setup.namespace))
    throw new Complaint(`--namespace takes the name of one, such as default, not ${JSON.stringify(setup.namespace)}`);
  const input = await readInput(paths);
  const recorded = await readInput(reviews);
  const [before, present, foreign] = [
    await readAll(old, "--old"),
    await readAll(state, "--state"),
    await readAll(webhooks, "--webhooks"),
  ];
  for (const { source, line, object } of foreign.filter((one) => !isConfiguration(one)))
    throw new Complaint(
      `--webhooks ${nameOf(source.name)}:${line} is a ${object.kind}, no ${hookKinds.join(" and no ")}`,
    );
  for (const { source, line, object } of recorded.manifests.filter((one) => !isReview(one)))
    recorded.faults.push({ file: source.name, line, sentence: `is a ${object.kind}, no AdmissionReview` });
  const all = input.manifests.filter((one) => !isForAnother(one));
  const manifests = [...all, ...recorded.manifests.filter(isReview)];
  const notes = new Set([...input.notes, ...input.manifests.filter(isForAnother).map(leftOut)]);

  const everything = [...present, ...before, ...manifests].map(({ object }) => object);
  const kinds = kindsOf(everything);
  const faults = [...input.faults, ...recorded.faults];
  if (manifests.length + faults.length === 0)
    throw new Complaint(`there is no manifest in ${[...paths, ...reviews].join(", ")}`);
  const note = (sentence: string) => void notes.add(sentence);
  const existing = openExisting(kinds, note);
  const asking: Omit<Asking, "operation"> = { user: setup.user, namespace: setup.namespace };
  for (const one of remarksOn(all, before, kinds, asking)) note(one);
  if (state.length > 0 && present.length === 0) note(`--state ${state.join(", ")} holds no manifest: nothing exists`);
  // What is to be deleted is there, all of it.
  const doomed = setup.operation === "DELETE" ? all : [];
  for (const object of [...born, ...wholeOf([...doomed, ...present], kinds, asking).values()])
    place(object, kinds, existing);

  const coming = (resource: Resource): KubernetesObject[] => {
    const found = ofResource(resource, manifests, kinds);
    for (const { kind } of found)
      note(
        `each ${kind} among the manifests holds for what is sent after it; in a cluster, once postern manifests has been applied again`,
      );
    return found;
  };
  const rules = await openRules(catalogue, cluster, setup.harden, existing.world, coming);
  for (const one of rules.notes) note(one);
  const court = hooked(rules, foreign, cluster[0], hosts);
  const missing = new Set<string>();
  const isKnown = state.length > 0;
  // What is sent together holds together: a policy takes effect some time after it was sent.
  const standing = [...present, ...all].filter(({ object }) => isUnevaluated(object));
  const unevaluated = openUnevaluated(
    standing.map(({ object }) => inNamespace(object, setup.namespace)),
    isKnown,
  );
  const judged = judgeAll(manifests, {
    ...{ ...court, kinds, existing, unevaluated, asking: { ...asking, operation: setup.operation } },
    ...{ old: wholeOf(before, kinds, asking), alsoPods: setup.alsoPods, isWorldKnown: isKnown },
    moreOf: "that may be among the manifests or in --state",
    missing: (namespace) => void missing.add(namespace),
  });
  const end = () => [...missingNamespaces(missing, isKnown), ...(isKnown ? [] : curious(rules))].map(note);
  return { faults, notes, judged: endingWith(judged, end) };
};

/** Also where nobody wants to hear the rest. */
const endingWith = async function* <T>(all: AsyncGenerator<T>, end: () => void): AsyncGenerator<T> {
  try {
    yield* all;
  } finally {
    end();
  }
};

/** Whose verdicts rest on what nobody told. */
const curious = ({ asking }: Rules): string[] => {
  if (asking.size === 0) return [];
  const ask = asking.size === 1 ? "asks" : "ask";
  return [
    `${[...asking].sort().join(", ")} ${ask} the cluster, of which nothing is known but these manifests; --state says what exists`,
  ];
};

/** What a check stands on must be right as a whole. */
export const readAll = async (paths: readonly string[], option: string): Promise<Manifest[]> => {
  const { manifests, faults } = await readInput(paths);
  if (faults.length > 0) throw new Complaint(faults.map((fault) => `${option} ${faultText(fault)}`).join("\n"));
  return manifests;
};

const hookKinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
const isConfiguration = ({ object: { kind } }: Manifest) => hookKinds.includes(String(kind));

const isLabel = (text: string) => /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(text);

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

const inNamespace = (object: Record<string, unknown>, otherwise: string): KubernetesObject => {
  const metadata = Object(object.metadata);
  return { ...object, metadata: { ...metadata, namespace: metadata.namespace || otherwise } };
};

const ofResource = ({ group, resource }: Resource, manifests: readonly Manifest[], kinds: Kinds) =>
  manifests.flatMap(({ object }): KubernetesObject[] => {
    const found = kinds.of(String(object.apiVersion), String(object.kind))?.resource;
    const isNamed = typeof own(object.metadata, "name") === "string";
    return isNamed && found?.group === group && found.resource === resource ? [object] : [];
  });

const place = (object: KubernetesObject, kinds: Kinds, existing: Existing) => {
  const kind = kinds.of(object.apiVersion ?? "", object.kind ?? "");
  if (kind !== undefined) existing.put(kind.resource, object);
};
