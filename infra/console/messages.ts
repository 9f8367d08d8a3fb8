// The types of the JSON that the console's server and its page exchange. The page is compiled for browsers, so this
// file imports nothing.

/** A row in the list of reviews. Names in it are redacted as in recordings. */
export interface ReviewRow
  extends Record<"cluster" | "rule" | "phase" | "operation" | "object" | "user" | "verdict", string> {
  /** The refusal, the warnings or the failure, as in the gateway's log; empty if there is none. */
  sentence: string;
  /** The start time of the gateway and a number, so that the id stays unique after a restart. */
  id: string;
  /** The time of the answer, in milliseconds since 1970. */
  at: number;
  milliseconds: number;
  /** If `rule` is the name of a group of rules: the verdicts of its rules that were called, by their names. */
  members?: Record<string, string>;
}

/**
 * The evaluation of one rule. The review of a group has one for each member rule that was called. `lines` and the
 * members after it show what the rule does in mode enforce, even if its mode is warn or audit.
 */
export interface EvaluationDetails {
  rule: string;
  phase: string;
  mode: string;
  title: string;
  /** The object, with its lines that the rule removed and added. */
  lines: ObjectLine[];
  refusal: string | undefined;
  warnings: string[];
  audit: Record<string, string>;
  /** The matchConditions of the webhook. The API server sends a review only if all conditions are true. */
  conditions: Record<string, string>;
  /** The lines for cases.yaml. */
  caseText: string;
  /** True if redaction may have changed the rule's answer. */
  isRedacted: boolean;
}

export type ReviewDetails = { row: ReviewRow; evaluations: EvaluationDetails[]; sentences: string[] };
export type ObjectLine = { sign: " " | "-" | "+"; text: string; rule?: string };

/** A rule with its mode in each cluster. */
export type RuleSummary = Record<"name" | "source" | "summary", string> & {
  phases: string[];
  modes: Record<string, string>;
};
export type CatalogueSummary = { rules: RuleSummary[]; clusters: string[] };

/** What the page of a rule shows. */
export interface RuleDetails extends RuleSummary {
  readme: string;
  cases: { name: string; text: string }[];
  /** The rule's configuration and its webhooks in each cluster, as YAML. */
  setups: { cluster: string; text: string }[];
  /** The rule's row in the parity table, with a cell for each minor version; absent for a rule without a row. */
  parity?: { minors: string[]; cells: string[] };
}

/** The manifests that the page sends for a check. An empty `operation` is CREATE or UPDATE, as in `kubectl apply`. */
export type CheckQuestion = Record<"text" | "cluster" | "user" | "operation", string>;

/** The part of the JSON from `postern check` that the page shows. */
export type CheckAnswer = { objects: CheckedObject[]; faults: { line: number; sentence: string }[]; notes: string[] };

/** The result of a check of one object. */
export interface CheckedObject extends Record<"kind" | "name" | "verdict", string> {
  line?: number;
  namespace?: string;
  madeBy?: string; // for a Pod that a workload would create: the workload's kind and name
  denials: { rule: string; message: string; line?: number; suggestion?: string }[];
  warnings: { rule: string; text: string }[];
  undecided: string[]; // a sentence for each thing that the check can't determine
  audit: Record<string, string>;
  hooks: (Record<"hook" | "phase" | "outcome", string> & {
    round: number; // 0 for the first call of the webhook (`hook`), 1 for a repeated call
    why?: string; // a sentence that says why the webhook's answer is unknown; absent if it was called
    allowed?: boolean;
    changed: boolean;
    failure?: string;
  })[];
  difference: { lines: ObjectLine[] }[];
}
