/** What became of one object on its way through the admission chain, as every report is made from it. */
export interface Checked {
  /** As the user named it, for instance `k8s/web.yaml`; `-` for standard input, absent for what no file holds. */
  file?: string;
  /** Where in the file the object begins, counted from 1. */
  line?: number;
  apiVersion: string;
  kind: string;
  namespace?: string;
  /** What its name is or begins with; empty where it has none. */
  name: string;
  /** Of one that a cluster has. */
  uid?: string;
  /** Of a Pod that a workload would make: the workload, which is in the same namespace. */
  madeBy?: Pick<Checked, "apiVersion" | "kind" | "name" | "uid">;
  verdict: Verdict;
  /** Says that its kind is unknown, and that no entry can be about it. */
  noRule?: true;
  /** Which made it so, where the verdict is "denied"; several where several rules refuse it. */
  denials: Denial[];
  warnings: Warning[];
  changes: Change[];
  /** A sentence for each thing that can't be said here. */
  undecided: string[];
  /** Rules that evaluated it and let it pass, for the reports that name them. */
  passed: string[];
}

/** The findings of a Checked about which there is nothing to say. */
export const noFindings = { denials: [], warnings: [], changes: [], undecided: [], passed: [] };

/** Undecided outweighs allowed and changed, denied outweighs all. */
export type Verdict = "allowed" | "changed" | "denied" | "undecided";

export interface Denial {
  /** The rule's name, a foreign webhook's, or that of a policy with its rule. */
  rule: string;
  /** What it says, without the API server's words around it. */
  message: string;
  code?: number;
  reason?: string;
  /** Of the field that is meant, else of the object. */
  line?: number;
  column?: number;
  /** What to do about it, where the rule can say. */
  suggestion?: string;
}

export interface Warning {
  rule: string;
  text: string;
}

/** What one rule changed. */
export interface Change {
  rule: string;
  /** JSON Patch, as it was applied. */
  patch: readonly object[];
}

/** Returns what reports name for an object: the object itself or, of a Pod that a workload would make, the workload. */
export const getTarget = (one: Checked): Pick<Checked, "apiVersion" | "kind" | "name" | "uid"> => one.madeBy ?? one;

/** The object as a person says it, for instance `Pod shop/web` or `Deployment shop/web (its Pods)`. */
export const describeObject = (one: Checked): string => {
  const { kind, name } = getTarget(one);
  const place = one.namespace ? `${one.namespace}/` : "";
  return `${kind} ${place}${name || "without a name"}${one.madeBy ? " (its Pods)" : ""}`;
};
