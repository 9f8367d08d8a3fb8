import { isMap, own } from "#lib/json.ts";
import { openRedaction } from "#lib/recording/redacted.ts";
import type { Operation, UserInfo } from "#lib/review.ts";
import { sentenceOf } from "../../cli/complaint.ts";
import { type Court, type Judged, judge, madeBy } from "../evaluation/evaluate.ts";
import { isWorkload } from "../evaluation/pod-templates.ts";
import type { Resource } from "./discovery.ts";
import type { Namespaces } from "./namespaces.ts";
import { called } from "./selected-kinds.ts";
import { manifestOf, type Stored, taken } from "./subjects.ts";

/** What objects of a cluster are judged with. */
interface Means {
  court: Court;
  namespaces: Namespaces;
  operation: Operation;
  user: UserInfo;
  alsoPods: boolean;
  note(sentence: string): void;
}

/** What becomes of an object as a cluster lists it, and of the Pods that it would make; nothing of it throws. */
export type Jury = (object: Stored, resource: Resource) => Promise<Judged[]>;

/** So many fields that nobody here knows are told; more are a sign of somebody playing. */
const mostStrays = 50;

/** Judges objects one by one, by these means. */
export const openJury = ({ court, namespaces, operation, user, alsoPods, note }: Means): Jury => {
  const strange = new Set<string>();
  const judged = async (object: Stored, resource: Resource): Promise<Judged[]> => {
    const { namespace, uid } = object.metadata ?? {};
    const { subject, misfits, strays } = taken(object, resource, { operation, user });
    for (const stray of strays) {
      const field = `${called(resource)} ${stray.replaceAll(/\[\d+\]/g, "[]")}`;
      if (strange.size === mostStrays || strange.has(field)) continue;
      strange.add(field);
      note(`the field ${field} isn't known here: rules are asked without it`);
    }
    // What chooses namespaces looks at the one itself, where it goes away.
    namespaces.put(resource.resource, object);
    const failure = namespace === undefined ? undefined : await namespaces.fetch(namespace);
    if (failure !== undefined)
      note(`of namespaces that can't be read, nothing is known but their names, as of ${namespace}: ${failure}`);
    const [misfit] = misfits;
    if (misfit !== undefined) throw new Error(`it can't be read: ${misfit}`);
    const first = await judge(subject, court);
    const all = [placeless(first, uid)];
    if (alsoPods && first.checked.verdict !== "denied" && !isOfWorkload(object))
      for await (const made of madeBy(first, court)) all.push(placeless(made, uid));
    return all;
  };
  return (object, resource) => judged(object, resource).catch((error) => [unjudged(object, sentenceOf(error))]);
};

/** A ReplicaSet of a Deployment has the template of that, of now or of before; the Deployment is judged for it. */
const isOfWorkload = ({ metadata }: Stored): boolean => {
  const owners: unknown = own(metadata, "ownerReferences");
  return (
    Array.isArray(owners) && owners.some((owner) => own(owner, "controller") === true && isWorkload(Object(owner)))
  );
};

/** No file has it, and so no line; a cluster's own name for it, or for the workload that would make it, says which it is. */
const placeless = (judged: Judged, uid: unknown): Judged => {
  const { file: _, line: __, denials, madeBy, ...checked } = judged.checked;
  const unplaced = denials.map(({ line: _, column: __, ...denial }) => denial);
  const named = typeof uid === "string" ? { uid } : {};
  const identity = madeBy === undefined ? named : { madeBy: { ...madeBy, ...named } };
  return discreet({ ...judged, checked: { ...checked, ...identity, denials: unplaced } });
};

/** Of a Secret, without what it holds, wherever that is told beside the difference, which hides it. */
const discreet = (judged: Judged): Judged => {
  const { checked, steps, before, after } = judged;
  if (checked.kind !== "Secret") return judged;
  const operation = (one: object): object => ("value" in one ? { ...one, value: "redacted" } : one);
  const redact = openRedaction();
  // What was applied last is an annotation.
  const veiled = (one: unknown) => (isMap(one) ? { ...one, metadata: redact(one.metadata) } : one);
  return {
    ...judged,
    checked: { ...checked, changes: checked.changes.map(({ rule, patch }) => ({ rule, patch: patch.map(operation) })) },
    audit: Object.fromEntries(Object.entries(judged.audit).filter(([key]) => !key.startsWith("patch."))),
    steps: steps.map((step) => (step.patch?.length ? { ...step, after: veiled(step.after) } : step)),
    ...{ before: veiled(before), after: veiled(after) },
  };
};

const unjudged = (object: Stored, sentence: string): Judged => {
  const { apiVersion = "", kind = "", metadata } = object;
  const { name = "", namespace, uid } = metadata ?? {};
  const place = { apiVersion, kind, ...(namespace !== undefined && { namespace }), name };
  const nothing = { denials: [], warnings: [], changes: [], passed: [] };
  return {
    subject: { manifest: manifestOf({ ...object }) },
    checked: {
      ...{ ...place, ...(typeof uid === "string" && { uid }), ...nothing },
      ...{ verdict: "undecided", undecided: [sentence] },
    },
    ...{ audit: {}, steps: [], before: null, after: null },
  };
};
