// What the console's server sends to its page, as JSON. The page is compiled for browsers, so this file imports nothing.

/** A line of the list of reviews. Its names are redacted as in recordings. */
export interface ReviewRow
  extends Record<"cluster" | "rule" | "phase" | "operation" | "object" | "user" | "verdict", string> {
  /** The refusal, the warnings or the failure, as logs have them; empty if there is none. */
  sentence: string;
  /** The gateway's start and a number, so that reviews of an earlier start stay different. */
  id: string;
  /** The time of the answer, in milliseconds since 1970. */
  at: number;
  milliseconds: number;
  /** The verdicts of a group's members that were called, by their names. */
  members?: Record<string, string>;
}

/**
 * The evaluation of one rule. The review of a group has an evaluation of each member that was called. From `lines` on,
 * members show the outcome of the mode enforce.
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
  /** The matchConditions of the webhook entry: the API server sends a review only if all are true. */
  conditions: Record<string, string>;
  /** The lines for cases.yaml. */
  caseText: string;
  /** True if redaction may have changed the rule's answer. */
  isRedacted: boolean;
}

export type ReviewDetails = { row: ReviewRow; evaluations: EvaluationDetails[]; sentences: string[] };
export type ObjectLine = { sign: " " | "-" | "+"; text: string; rule?: string };

/** A rule with its mode by cluster. */
export type RuleSummary = Record<"name" | "source" | "summary", string> & {
  phases: string[];
  modes: Record<string, string>;
};
export type CatalogueSummary = { rules: RuleSummary[]; clusters: string[] };

export interface RuleDetails extends RuleSummary {
  readme: string;
  cases: { name: string; text: string }[];
  /** The config and the webhook entries of each cluster, as YAML. */
  setups: { cluster: string; text: string }[];
  /** The rule's cells in the parity table, by minor version; absent for a rule without parity. */
  parity?: { minors: string[]; cells: string[] };
}

/** What the page asks. `operation` is empty for what `kubectl apply` does. */
export type CheckQuestion = Record<"text" | "cluster" | "user" | "operation", string>;

/** The JSON that `postern check` prints, as far as the page shows it. */
export type CheckAnswer = { objects: CheckedObject[]; faults: { line: number; sentence: string }[]; notes: string[] };

export interface CheckedObject extends Record<"kind" | "name" | "verdict", string> {
  line?: number;
  namespace?: string;
  madeBy?: string;
  denials: { rule: string; message: string; line?: number; suggestion?: string }[];
  warnings: { rule: string; text: string }[];
  undecided: string[];
  audit: Record<string, string>;
  hooks: (Record<"hook" | "phase" | "outcome", string> & {
    round: number;
    why?: string;
    allowed?: boolean;
    changed: boolean;
    failure?: string;
  })[];
  difference: { lines: ObjectLine[] }[];
}
