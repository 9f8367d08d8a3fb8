/** The outcome for one object; every report is made from it. */
export interface Checked {
  /** The file as the user named it, such as `k8s/web.yaml`; `-` is standard input, undefined means no file. */
  file?: string;
  /** The line where the object begins, counted from 1. */
  line?: number;
  apiVersion: string;
  kind: string;
  namespace?: string;
  /** The name or generateName; empty if there is neither. */
  name: string;
  /** Set for an object that was read from a cluster. */
  uid?: string;
  /** Set for a Pod that a workload would create: the workload, which is in the same namespace. */
  madeBy?: Pick<Checked, "apiVersion" | "kind" | "name" | "uid">;
  verdict: Verdict;
  /** Set if the kind is unknown and no entry can match it. */
  noRule?: true;
  denials: Denial[];
  warnings: Warning[];
  changes: Change[];
  /** A sentence for each thing that can't be determined here. */
  undecided: string[];
  /** Rules that allowed the object without a change. */
  passed: string[];
}

export const noFindings = { denials: [], warnings: [], changes: [], undecided: [], passed: [] };

/** Denied takes precedence over undecided, undecided over changed and allowed. */
export type Verdict = "allowed" | "changed" | "denied" | "undecided";

export interface Denial {
  /** The name of a rule, of a foreign webhook, or of a policy and its rule. */
  rule: string;
  /** The message without the API server's prefix. */
  message: string;
  code?: number;
  reason?: string;
  /** The position of the field that the refusal is about, or of the object. */
  line?: number;
  column?: number;
  suggestion?: string;
}

export interface Warning {
  rule: string;
  text: string;
}

export interface Change {
  rule: string;
  patch: readonly object[];
}

/** Returns what reports name: the object or, for a Pod that a workload would create, the workload. */
export const getTarget = (one: Checked): Pick<Checked, "apiVersion" | "kind" | "name" | "uid"> => one.madeBy ?? one;

/** Names an object for readers, for instance `Pod shop/web` or `Deployment shop/web (its Pods)`. */
export const describeObject = (one: Checked): string => {
  const { kind, name } = getTarget(one);
  const place = one.namespace ? `${one.namespace}/` : "";
  return `${kind} ${place}${name || "without a name"}${one.madeBy ? " (its Pods)" : ""}`;
};
